// SPDX-License-Identifier: MIT
//
// register_kernels: turns a CUDA-style C++ source into one that the prelude can work with.
//
// What: makes the kernels known to the module: behind each `__global__` function definition, full
// specialization and explicit instantiation, on the line where it ends and in its namespace, it
// puts a registration macro of the prelude. A kernel inside `#if` is registered inside the same
// `#if`. And it puts a macro in front of `extern __shared__ T name[];` that declares `name` as the
// block's dynamic shared memory. Nothing is taken away, and every line keeps its number. Comments,
// strings, raw strings and preprocessor lines are skipped.
// When not: what only a macro's expansion shows, and what stands in a header, is not seen:
// instantiate or register such kernels in the source (prelude.hpp).
//
// Example:
//     register_kernels("__global__ void f(int* x) { *x = 1; }")
//     // "__global__ void f(int* x) { *x = 1; } DJ_HOST_REGISTER_AS(void(int* x), f)"
//
// Errors: none: what it does not understand it leaves alone.
// Thread-safety: a pure function.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace deep_jit::host {

// Part of the cache key: raised when the same source would be rewritten differently.
inline constexpr int kSourceRewriterVersion = 2;

std::string register_kernels(std::string_view source);

// --- Inline implementations ---

namespace detail {

struct SourceToken {
  enum class Kind { kIdentifier, kPunctuation, kLiteral, kDirective };
  Kind kind;
  std::string_view text;  // For a directive its name: `if`, `else`, ...
  std::size_t begin;
  std::size_t end;

  bool is(std::string_view other) const {
    return text == other && (kind == Kind::kIdentifier || kind == Kind::kPunctuation);
  }
};

// Splits a source into tokens, without comments and blanks.
class SourceLexer {
 public:
  explicit SourceLexer(std::string_view source) : source_(source) {}

  std::vector<SourceToken> tokens() {
    bool line_start = true;
    while (at_ < source_.size()) {
      const char c = source_[at_];
      if (c == '\n') {
        line_start = true;
        ++at_;
      } else if (is_blank(c) || skip_continuation() || skip_comment()) {
        if (is_blank(c)) ++at_;
      } else if (c == '#' && line_start) {
        lex_directive();
      } else {
        line_start = false;
        lex_token();
      }
    }
    return std::move(tokens_);
  }

 private:
  using Kind = SourceToken::Kind;

  static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
  }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  static bool is_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' ||
           static_cast<unsigned char>(c) >= 0x80;
  }
  char peek(std::size_t offset = 0) const {
    return at_ + offset < source_.size() ? source_[at_ + offset] : '\0';
  }
  bool starts_with(std::string_view text) const { return source_.substr(at_).starts_with(text); }
  void skip_past(std::string_view text, std::size_t from) {
    const auto found = source_.find(text, from);
    at_ = found == source_.npos ? source_.size() : found + text.size();
  }

  // A backslash that joins the next line.
  bool skip_continuation() {
    if (!starts_with("\\\n") && !starts_with("\\\r\n")) return false;
    skip_past("\n", at_);
    return true;
  }

  bool skip_comment() {
    if (starts_with("/*")) {
      skip_past("*/", at_ + 2);
      return true;
    }
    if (!starts_with("//")) return false;
    while (at_ < source_.size() && source_[at_] != '\n') {
      if (!skip_continuation()) ++at_;
    }
    return true;
  }

  // A string or character literal; an unclosed one ends with its line, as in text under `#if 0`.
  void skip_quoted() {
    const char quote = source_[at_++];
    while (at_ < source_.size() && source_[at_] != '\n') {
      if (skip_continuation()) continue;
      const char c = source_[at_++];
      if (c == '\\' && at_ < source_.size()) ++at_;
      if (c == quote) return;
    }
  }

  void skip_raw_string() {
    const auto open = source_.find('(', at_);
    if (open == source_.npos) return skip_quoted();
    const std::string delimiter(source_.substr(at_ + 1, open - at_ - 1));
    skip_past(")" + delimiter + "\"", open);
  }

  void lex_directive() {
    const std::size_t begin = at_++;
    while (is_blank(peek())) ++at_;
    const std::size_t name = at_;
    while (at_ < source_.size() && is_word(source_[at_])) ++at_;
    const std::string_view text = source_.substr(name, at_ - name);
    while (at_ < source_.size() && source_[at_] != '\n') {
      if (skip_continuation() || skip_comment()) continue;
      if (source_[at_] == '"') {
        skip_quoted();
      } else {
        ++at_;
      }
    }
    tokens_.push_back({Kind::kDirective, text, begin, at_});
  }

  void lex_token() {
    const std::size_t begin = at_;
    Kind kind = Kind::kPunctuation;
    const char c = source_[at_];
    if (is_digit(c) || (c == '.' && is_digit(peek(1)))) {
      kind = Kind::kLiteral;
      while (at_ < source_.size() &&
             (is_word(source_[at_]) || source_[at_] == '.' ||
              (source_[at_] == '\'' && is_word(peek(1))) ||
              ((source_[at_] == '+' || source_[at_] == '-') &&
               std::string_view("eEpP").find(source_[at_ - 1]) != std::string_view::npos))) {
        ++at_;
      }
    } else if (is_word(c)) {
      kind = Kind::kIdentifier;
      while (at_ < source_.size() && is_word(source_[at_])) ++at_;
      const std::string_view word = source_.substr(begin, at_ - begin);
      if (peek() == '"' &&
          (word == "R" || word == "u8R" || word == "uR" || word == "UR" || word == "LR")) {
        kind = Kind::kLiteral;
        skip_raw_string();
      }
    } else if (c == '"' || c == '\'') {
      kind = Kind::kLiteral;
      skip_quoted();
    } else {
      at_ += starts_with("::") ? 2 : 1;
    }
    tokens_.push_back({kind, source_.substr(begin, at_ - begin), begin, at_});
  }

  std::string_view source_;
  std::size_t at_ = 0;
  std::vector<SourceToken> tokens_;
};

// Finds kernels and dynamic shared memory in a list of tokens. Positions are indices into the list;
// size() is "none".
class KernelFinder {
 public:
  struct Insertion {
    std::size_t offset;  // In the source.
    std::string text;
  };

  explicit KernelFinder(std::vector<SourceToken> tokens) : tokens_(std::move(tokens)) {}

  // In the order of their places.
  std::vector<Insertion> find() const {
    std::vector<Insertion> found;
    find_kernels(found);
    find_shared_arrays(found);
    std::ranges::stable_sort(found, {}, &Insertion::offset);
    return found;
  }

 private:
  using Kind = SourceToken::Kind;
  enum class Declaration { kFunction, kTemplate, kSpecialization, kInstantiation, kExtern };

  void find_kernels(std::vector<Insertion>& found) const {
    std::size_t declaration = 0;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const auto& token = tokens_[i];
      if (token.is(";") || token.is("{") || token.is("}")) declaration = i + 1;
      if (!token.is("__global__")) continue;
      const std::size_t end = find_kernel(declaration, i, found);
      if (end < tokens_.size()) declaration = (i = end) + 1;
    }
  }

  void find_shared_arrays(std::vector<Insertion>& found) const {
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (is(i, "extern")) find_shared_array(i, found);
    }
  }

  // `extern __shared__ T name[]...;`, with attributes anywhere, whose `extern` is at `begin`.
  void find_shared_array(std::size_t begin, std::vector<Insertion>& found) const {
    bool is_shared = false;
    std::string type;
    std::size_t type_end = 0;
    std::size_t i = begin + 1;
    for (; i < tokens_.size() && !is(i + 1, "["); ++i) {
      const auto& token = tokens_[i];
      if (token.is(";") || token.is("{") || token.is("}") || token.is("=") ||
          token.kind == Kind::kDirective) {
        return;
      }
      if (token.is("__shared__")) {
        is_shared = true;
      } else if (token.is("__align__") || token.is("alignas") || token.is("__attribute__")) {
        i = match(i + 1, "(", ")");
      } else {
        if (!type.empty() && token.begin != type_end) type += ' ';
        type += token.text;
        type_end = token.end;
      }
    }
    if (!is_shared || type.empty() || !is(i + 2, "]") || tokens_[i].kind != Kind::kIdentifier) {
      return;
    }
    std::size_t end = i + 3;
    while (is(end, "[")) end = match(end, "[", "]") + 1;
    if (!is(end, ";") || !is_one_line(begin, end)) return;
    found.push_back({tokens_[begin].begin, "DJ_HOST_DYNAMIC_SHARED(" +
                                               std::string(tokens_[i].text) + ", " + type +
                                               text(i + 3, end) + ") DJ_HOST_IGNORE("});
    found.push_back({tokens_[end - 1].end, ")"});
  }

  std::size_t none() const { return tokens_.size(); }
  bool is(std::size_t i, std::string_view text) const {
    return i < tokens_.size() && tokens_[i].is(text);
  }

  Declaration classify(std::size_t begin, std::size_t end) const {
    bool is_extern = false;
    for (std::size_t i = begin; i < end; ++i) {
      is_extern = is_extern || is(i, "extern");
      if (!is(i, "template")) continue;
      if (!is(i + 1, "<")) return is_extern ? Declaration::kExtern : Declaration::kInstantiation;
      return is(i + 2, ">") ? Declaration::kSpecialization : Declaration::kTemplate;
    }
    return Declaration::kFunction;
  }

  // The position of the bracket that closes the one at `open`.
  std::size_t match(std::size_t open, std::string_view opening, std::string_view closing) const {
    std::size_t depth = 0;
    for (std::size_t i = open; i < tokens_.size(); ++i) {
      if (tokens_[i].is(opening)) ++depth;
      if (tokens_[i].is(closing) && --depth == 0) return i;
      if (opening == "<" && tokens_[i].is("(")) i = match(i, "(", ")");
    }
    return none();
  }

  // The closing brace of a body. Each branch of an #if inside starts from the same depth; a branch
  // that began before the body (`crossed`) is left at its #else.
  std::size_t match_body(std::size_t open, bool& crossed) const {
    std::vector<int> at_if;
    int depth = 0;
    for (std::size_t i = open; i < tokens_.size(); ++i) {
      const auto& token = tokens_[i];
      if (token.is("{")) ++depth;
      if (token.is("}") && --depth == 0) return i;
      if (token.kind != Kind::kDirective) continue;
      if (token.text.starts_with("if")) {
        at_if.push_back(depth);
      } else if (token.text.starts_with("el")) {
        if (at_if.empty()) {
          crossed = true;
          i = skip_branch(i);
        } else {
          depth = at_if.back();
        }
      } else if (token.text == "endif" && !at_if.empty()) {
        at_if.pop_back();
      }
    }
    return none();
  }

  // From an #else or #elif to its #endif.
  std::size_t skip_branch(std::size_t i) const {
    int nested = 0;
    for (++i; i < tokens_.size(); ++i) {
      if (tokens_[i].kind != Kind::kDirective) continue;
      if (tokens_[i].text.starts_with("if")) ++nested;
      if (tokens_[i].text == "endif" && nested-- == 0) return i;
    }
    return none();
  }

  // The source text of tokens [begin, end) on one line, without comments.
  std::string text(std::size_t begin, std::size_t end) const {
    std::string joined;
    for (std::size_t i = begin; i < end; ++i) {
      if (i > begin && tokens_[i].begin != tokens_[i - 1].end) joined += ' ';
      joined += tokens_[i].text;
    }
    return joined;
  }

  // Handles the kernel whose `__global__` is at `global`; the position of its last token, or none()
  // when there is nothing to register.
  std::size_t find_kernel(std::size_t declaration, std::size_t global,
                          std::vector<Insertion>& found) const {
    const Declaration kind = classify(declaration, global);
    if (kind == Declaration::kTemplate || kind == Declaration::kExtern) return none();
    std::size_t name_begin = none();
    std::size_t name_end = none();
    std::size_t i = global + 1;
    for (; i < tokens_.size(); ++i) {
      const auto& token = tokens_[i];
      if (token.is("(")) {
        const std::size_t close = match(i, "(", ")");
        if (close == none()) return none();
        if (name_begin != none() && is_parameter_list(name_begin, close)) break;
        name_begin = none();  // The arguments of an attribute such as __launch_bounds__(256).
        i = close;
      } else if (token.kind == Kind::kIdentifier || token.is("::")) {
        const bool continues =
            i > 0 && name_begin != none() &&
            (token.is("::") ? name_end == i && !is(i - 1, "void") : is(i - 1, "::"));
        if (!continues) name_begin = i;
        name_end = i + 1;
      } else if (token.is("<") && name_end == i) {
        i = match(i, "<", ">");
        if (i == none()) return none();
        name_end = i + 1;
      } else if (token.is("[")) {
        i = match(i, "[", "]");
      } else if (token.is(";") || token.is("{") || token.is("}") || token.is("=")) {
        return none();
      }
    }
    if (i >= tokens_.size()) return none();

    const std::size_t parameters = i + 1;
    const std::size_t close = match(i, "(", ")");
    std::size_t last = close + 1;
    while (last < tokens_.size() && !is(last, "{") && !is(last, ";")) ++last;
    bool by_name = !has_plain_types(parameters, close);
    if (is(last, "{") && kind != Declaration::kInstantiation) {
      last = match_body(last, by_name);
    } else if (!is(last, ";") || kind != Declaration::kInstantiation) {
      return none();
    }
    if (last >= tokens_.size() || !is_one_line(name_begin, name_end)) return none();
    const std::string name = text(name_begin, name_end);
    found.push_back(
        {tokens_[last].end,
         by_name ? " DJ_HOST_REGISTER(" + name + ")"
                 : " DJ_HOST_REGISTER_AS(void(" + text(parameters, close) + "), " + name + ")"});
    return last;
  }

  // Whether the parentheses that close at `close` hold parameters, not an attribute's arguments.
  bool is_parameter_list(std::size_t name, std::size_t close) const {
    if (tokens_[name].text.starts_with("__") || tokens_[name].is("alignas")) return false;
    std::size_t next = close + 1;
    while (next < tokens_.size() && tokens_[next].kind == Kind::kDirective) ++next;
    return is(next, "{") || is(next, ";") || is(next, "noexcept") || is(next, "__attribute__") ||
           is(next, "[");
  }

  // Whether the parameters can be repeated as a type: no default argument, no preprocessor line,
  // nothing that takes several lines.
  bool has_plain_types(std::size_t begin, std::size_t end) const {
    for (std::size_t i = begin; i < end; ++i) {
      if (tokens_[i].is("=") || tokens_[i].kind == Kind::kDirective) return false;
    }
    return is_one_line(begin, end);
  }

  // A literal may hold line ends (a raw string, a continued line); repeating it would move lines.
  bool is_one_line(std::size_t begin, std::size_t end) const {
    for (std::size_t i = begin; i < end; ++i) {
      if (tokens_[i].text.find('\n') != std::string_view::npos) return false;
    }
    return true;
  }

  std::vector<SourceToken> tokens_;
};

}  // namespace detail

inline std::string register_kernels(std::string_view source) {
  std::string rewritten;
  std::size_t copied = 0;
  for (const auto& insertion : detail::KernelFinder(detail::SourceLexer(source).tokens()).find()) {
    rewritten += source.substr(copied, insertion.offset - copied);
    rewritten += insertion.text;
    copied = insertion.offset;
  }
  rewritten += source.substr(copied);
  return rewritten;
}

}  // namespace deep_jit::host
