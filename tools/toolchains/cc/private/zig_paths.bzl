"""Where the zig repository lies below the execution root: its name there is Bazel's to choose."""

ZIG = Label("@zig//:zig").workspace_root
