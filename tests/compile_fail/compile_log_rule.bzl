"""compile_log: what the compiler says about one source file, as a file for a test to read."""

load("@rules_cc//cc:action_names.bzl", "ACTION_NAMES")
load("@rules_cc//cc:find_cc_toolchain.bzl", "find_cc_toolchain", "use_cc_toolchain")
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")

def _compile_log_impl(ctx):
    toolchain = find_cc_toolchain(ctx)
    log = ctx.actions.declare_file(ctx.label.name + ".log")
    features = cc_common.configure_features(ctx = ctx, cc_toolchain = toolchain)
    context = cc_common.merge_cc_infos(
        cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
    ).compilation_context
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        source_file = ctx.file.src.path,
        output_file = log.path + ".o",  # of no use, and not an output
        include_directories = context.includes,
        quote_include_directories = context.quote_includes,
        system_include_directories = depset(transitive = [context.system_includes, context.external_includes]),
        preprocessor_defines = context.defines,
    )
    action = ACTION_NAMES.cpp_compile
    ctx.actions.run_shell(
        mnemonic = "CompileLog",
        inputs = depset([ctx.file.src], transitive = [context.headers, toolchain.all_files]),
        outputs = [log],
        # The exit code, and everything that was said.
        command = 'log=$1; shift; "$@" >"$log.part" 2>&1; echo "exit code $?" >"$log"; cat "$log.part" >>"$log"',
        arguments = [
            log.path,
            cc_common.get_tool_for_action(feature_configuration = features, action_name = action),
        ] + cc_common.get_memory_inefficient_command_line(
            feature_configuration = features,
            action_name = action,
            variables = variables,
        ),
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = action,
            variables = variables,
        ),
    )
    return [DefaultInfo(files = depset([log]), runfiles = ctx.runfiles([log]))]

compile_log = rule(
    doc = "Runs the C++ compiler of this build over a file, whatever comes of it.",
    implementation = _compile_log_impl,
    attrs = {
        "src": attr.label(allow_single_file = [".cc"], mandatory = True),
        "deps": attr.label_list(providers = [CcInfo]),
    },
    toolchains = use_cc_toolchain(),
    fragments = ["cpp"],
)
