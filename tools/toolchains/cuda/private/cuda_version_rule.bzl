"""cuda_version: the build flag. What it may be is checked where a toolkit is needed, with the other
reasons why there is none."""

load("@bazel_skylib//rules:common_settings.bzl", "BuildSettingInfo")

cuda_version = rule(
    implementation = lambda ctx: BuildSettingInfo(value = ctx.build_setting_value),
    build_setting = config.string(flag = True),
)
