"""Who may use which GPU when: KubeShare's token (Yeh et al., HPDC 2020, §4.5) as a pure state machine.

Values and `now_ns` in, instructions out; nothing here reads a clock, a file or a socket. `turns` has the events and
instructions, `scheduler` decides.
"""
