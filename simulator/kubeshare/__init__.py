"""KubeShare's figures (Yeh et al., HPDC 2020): its policy and the share core, on clusters that exist in memory."""
