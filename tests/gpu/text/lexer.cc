#include "tests/gpu/text/lexer.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"

namespace outboard::ptx {

bool StartsWord(char c) { return std::isalpha(c) || c == '_' || c == '$' || c == '%' || c == '.'; }
bool InWord(char c) { return std::isalnum(c) || c == '_' || c == '$' || c == '%' || c == '.'; }

absl::Status ErrorAt(int line, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("PTX line ", line, ": ", std::string(what)));
}

namespace {

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  absl::StatusOr<std::vector<Token>> Run() {
    std::vector<Token> tokens;
    while (SkipBlank()) {
      const char c = text_[at_];
      const size_t begin = at_;
      if (c == '"') {
        at_ = text_.find('"', at_ + 1);
        if (at_ == std::string_view::npos) return ErrorAt(line_, "a string has no end");
        ++at_;
      } else if (StartsWord(c)) {
        while (at_ < text_.size() && (InWord(text_[at_]) || Colons())) at_ += Colons() ? 2 : 1;
      } else if (std::isdigit(c)) {
        while (at_ < text_.size() && (std::isalnum(text_[at_]) || text_[at_] == '.')) ++at_;
      } else {
        ++at_;
      }
      tokens.push_back({text_.substr(begin, at_ - begin), line_});
      // Lines of debug information end without a semicolon.
      const std::string_view word = tokens.back().text;
      if (word == ".loc" || word == ".file") {
        tokens.pop_back();
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      }
    }
    return tokens;
  }

 private:
  bool Colons() const { return text_.substr(at_, 2) == "::"; }
  bool SkipBlank() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n') ++line_;
      if (std::isspace(static_cast<unsigned char>(c)) || c == 0) {
        ++at_;
      } else if (text_.substr(at_, 2) == "//") {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (text_.substr(at_, 2) == "/*") {
        const size_t end = std::min(text_.find("*/", at_), text_.size() - 2);
        for (; at_ < end; ++at_) line_ += text_[at_] == '\n';
        at_ = end + 2;
      } else {
        return true;
      }
    }
    return false;
  }

  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

bool ReadNumber(std::string_view word, bool negative, Operand* out) {
  if (word.empty() || !std::isdigit(word[0])) return false;
  const std::string text(word);
  out->kind = Operand::kNumber;
  if (word.size() == 10 && (word.substr(0, 2) == "0f" || word.substr(0, 2) == "0F")) {
    out->bits = std::strtoull(text.c_str() + 2, nullptr, 16);
    if (negative) out->bits ^= 0x80000000u;
    return true;
  }
  if (word.size() == 18 && (word.substr(0, 2) == "0d" || word.substr(0, 2) == "0D")) {
    out->bits = std::strtoull(text.c_str() + 2, nullptr, 16);
    if (negative) out->bits ^= uint64_t{1} << 63;
    return true;
  }
  if (word.find('.') != std::string_view::npos) {
    out->is_float = true;
    out->real = std::strtod(text.c_str(), nullptr) * (negative ? -1 : 1);
    return true;
  }
  if (word.size() > 2 && (word.substr(0, 2) == "0b" || word.substr(0, 2) == "0B"))
    out->bits = std::strtoull(text.c_str() + 2, nullptr, 2);
  else
    out->bits = std::strtoull(text.c_str(), nullptr, 0);
  if (negative) out->bits = -out->bits;
  return true;
}

absl::StatusOr<std::vector<Token>> ReadTokens(std::string_view text) { return Lexer(text).Run(); }

}  // namespace outboard::ptx
