"""Who may use which GPU when: KubeShare's token (Yeh et al., HPDC 2020, §4.5) as a pure state machine.

Values and `now_ns` in, instructions out; nothing here reads a clock, a file or a socket. `turns` has the events and
instructions, `scheduler` turns one into the other. What was used (`meters`) is charged (`charging`) to `accounts`,
which follow a fluid reference (`rates`). From them `tokens` and `yielding` decide who holds what, for one `quota` or
longer; `gates` says it in a word, and `deadlines` when to look again. `spans` tells of requests that were not met.

What always holds: a GPU's token has one holder at most; a container holds those of all its GPUs or none; all lags on
a GPU sum to 0; nobody is charged for more than the time that passed; the same events give the same instructions.
"""
