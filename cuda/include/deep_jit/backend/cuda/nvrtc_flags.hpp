// SPDX-License-Identifier: MIT
//
// nvcc's flags in NVRTC's words.
//
// What: the options of a request are nvcc flags; NVRTC takes most of those that concern device code
// under the same or another spelling. What concerns only the host side (-O3, -Xcompiler -fPIC) is
// left out, and so is what NVRTC does anyway (--expt-relaxed-constexpr, --expt-extended-lambda: all
// code is device code there). Whatever is not known here is refused: a flag that is silently lost
// could change a kernel. Nothing is added but `-default-device`; in particular -DNDEBUG is up to
// the user, as with nvcc.
// When not: whether NVRTC knows a value (-std=c++23, an architecture) is for NVRTC to say.
//
// Example:
//     NvrtcFlags flags = translate_flags({"--gpu-architecture=sm_90a", "-O3", "-DN=4"});
//     // flags.options == {"--gpu-architecture=sm_90a", "--define-macro=N=4"}, flags.refused == ""
//
// Errors: none; see `refused`.
// Thread-safety: a pure function.
#pragma once

#include <algorithm>
#include <cstddef>
#include <format>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace deep_jit::cuda {

struct NvrtcFlags {
  std::vector<std::string> options;
  std::string refused;  // Why NVRTC cannot serve these flags; empty: it can.
};

NvrtcFlags translate_flags(const std::vector<std::string>& flags);

// --- Inline implementations ---

namespace detail {

struct FlagForm {
  std::string_view short_name;  // "" if there is none.
  std::string_view long_name;   // What NVRTC calls it, too.
};

inline constexpr FlagForm kValueFlags[] = {
    {"-arch", "--gpu-architecture"},
    {"-std", "--std"},
    {"-D", "--define-macro"},
    {"-U", "--undefine-macro"},
    {"-I", "--include-path"},
    {"-isystem", "--system-include"},
    {"-include", "--pre-include"},
    {"-Xptxas", "--ptxas-options"},
    {"-Xcompiler", "--compiler-options"},
    {"-O", "--optimize"},
    {"-maxrregcount", "--maxrregcount"},
    {"-fmad", "--fmad"},
    {"-ftz", "--ftz"},
    {"-prec-div", "--prec-div"},
    {"-prec-sqrt", "--prec-sqrt"},
    {"-diag-suppress", "--diag-suppress"},
    {"-diag-error", "--diag-error"},
    {"-diag-warn", "--diag-warn"},
};

inline constexpr FlagForm kPlainFlags[] = {
    {"-use_fast_math", "--use_fast_math"},
    {"-lineinfo", "--generate-line-info"},
    {"-G", "--device-debug"},
    {"-restrict", "--restrict"},
    {"-w", "--disable-warnings"},
    {"-extra-device-vectorization", "--extra-device-vectorization"},
};

inline constexpr FlagForm kNeedlessFlags[] = {
    {"-expt-relaxed-constexpr", "--expt-relaxed-constexpr"},
    {"-expt-extended-lambda", "--expt-extended-lambda"},
    {"-extended-lambda", "--extended-lambda"},
    {"-default-device", "--device-as-default-execution-space"},  // Is added at the end.
};

// Of the host compiler, and without any effect on device code. (-D or -include would have one.)
inline bool concerns_host_only(std::string_view word) {
  constexpr std::string_view kPrefixes[] = {
      "-O",           "-fPIC",   "-fpic",   "-fPIE", "-fpie", "-fconcepts",
      "-fvisibility", "-march=", "-mtune=", "-g",    "-pipe"};
  if (word.starts_with("-W")) return word.find(',') == word.npos;  // Not -Wp,-DX.
  return std::ranges::any_of(kPrefixes,
                             [word](std::string_view prefix) { return word.starts_with(prefix); });
}

class FlagTranslator {
 public:
  explicit FlagTranslator(const std::vector<std::string>& flags) : flags_(flags) {}

  NvrtcFlags translate() {
    for (; at_ < flags_.size() && result_.refused.empty(); ++at_) take(flags_[at_]);
    // nvcc, too, looks into them after all others.
    std::ranges::copy(system_includes_, std::back_inserter(result_.options));
    result_.options.emplace_back("-default-device");
    return std::move(result_);
  }

 private:
  void take(std::string_view flag) {
    for (const FlagForm& form : kNeedlessFlags) {
      if (flag == form.short_name || flag == form.long_name) return;
    }
    for (const FlagForm& form : kPlainFlags) {
      if (flag == form.short_name || flag == form.long_name) {
        result_.options.emplace_back(form.long_name);
        return;
      }
    }
    for (const FlagForm& form : kValueFlags) {
      for (const std::string_view name : {form.long_name, form.short_name}) {
        if (!flag.starts_with(name)) continue;
        std::string_view value = flag.substr(name.size());
        const bool is_letter = name.size() == 2;  // -DX, but not -std17.
        if (value.empty()) {
          if (++at_ == flags_.size()) return refuse(flag, "it has no value");
          value = flags_[at_];
        } else if (value.starts_with('=')) {
          value.remove_prefix(1);
        } else if (!is_letter) {
          continue;
        }
        return take_value(flag, form.long_name, value);
      }
    }
    refuse(flag, "it has no counterpart there");
  }

  void take_value(std::string_view flag, std::string_view name, std::string_view value) {
    if (name == "--optimize") {  // For host code; ptxas has -O3 unless told otherwise.
      if (value.find_first_not_of("0123456789s") != value.npos) {
        refuse(flag, "it has no counterpart there");
      }
      return;
    }
    if (name == "--compiler-options") {
      for (std::string_view rest = value; !rest.empty();) {
        const std::string_view word = rest.substr(0, rest.find(','));
        rest.remove_prefix(std::min(word.size() + 1, rest.size()));
        // A comma inside of -W... is part of it.
        if (!concerns_host_only(word) || value.find("-Wp,") != value.npos) {
          return refuse(flag, "it is for the host compiler, and may change device code");
        }
      }
      return;
    }
    if (name == "--include-path" || name == "--system-include") {
      if (!value.starts_with('/')) return refuse(flag, "a relative directory has no meaning there");
      auto& options = name == "--include-path" ? result_.options : system_includes_;
      options.push_back(std::format("--include-path={}", value));
      return;
    }
    result_.options.push_back(std::format("{}={}", name, value));
  }

  void refuse(std::string_view flag, std::string_view reason) {
    result_.refused = std::format("NVRTC cannot take the flag `{}`: {}", flag, reason);
  }

  const std::vector<std::string>& flags_;
  std::size_t at_ = 0;
  std::vector<std::string> system_includes_;
  NvrtcFlags result_;
};

}  // namespace detail

inline NvrtcFlags translate_flags(const std::vector<std::string>& flags) {
  return detail::FlagTranslator(flags).translate();
}

}  // namespace deep_jit::cuda
