#include "gateway/prices/lined_json.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace outboard::gateway {

namespace {

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  absl::StatusOr<LinedJson> Whole() {
    OB_ASSIGN_OR_RETURN(LinedJson value, Value(0));
    SkipSpace();
    if (at_ < text_.size()) return AtLine(line_, "something follows the end");
    return value;
  }

 private:
  void SkipSpace() {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '\n') ++line_;
      if (c != ' ' && c != '\n' && c != '\t' && c != '\r') return;
    }
  }

  // The next character that is no space; 0: the end.
  char Peek() {
    SkipSpace();
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  absl::Status Expect(char c) {
    if (Peek() != c) return AtLine(line_, absl::StrCat("expected '", std::string(1, c), "'"));
    ++at_;
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> String() {
    OB_RETURN_IF_ERROR(Expect('"'));
    std::string content;
    for (; at_ < text_.size(); ++at_) {
      char c = text_[at_];
      if (c == '"') {
        ++at_;
        return content;
      }
      if (c == '\\') {
        c = ++at_ < text_.size() ? text_[at_] : '\0';
        if (c != '"' && c != '\\' && c != '/')
          return AtLine(line_, "of escapes, only \\\", \\\\ and \\/ are read here");
      } else if (!absl::ascii_isprint(static_cast<unsigned char>(c))) {
        return AtLine(line_, "a string holds printable ASCII on one line");
      }
      content.push_back(c);
    }
    return AtLine(line_, "a string does not end");
  }

  absl::StatusOr<LinedJson> Value(int depth) {
    if (depth >= kJsonDepthMax)
      return AtLine(line_, absl::StrCat("more than ", kJsonDepthMax, " levels"));
    LinedJson value;
    const char first = Peek();
    value.line = line_;
    if (first == '{') return Object(depth);
    if (first == '[') return Array(depth);
    if (first == '"') {
      value.kind = LinedJson::Kind::kString;
      OB_ASSIGN_OR_RETURN(value.text, String());
      return value;
    }
    const bool is_number = first == '-' || absl::ascii_isdigit(static_cast<unsigned char>(first));
    value.kind = is_number ? LinedJson::Kind::kNumber : LinedJson::Kind::kWord;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '+' && c != '.')
        break;
      value.text.push_back(c);
    }
    if (is_number || value.text == "true" || value.text == "false" || value.text == "null")
      return value;
    return AtLine(line_, "expected a value");
  }

  absl::StatusOr<LinedJson> Object(int depth) {
    LinedJson value;
    value.kind = LinedJson::Kind::kObject;
    value.line = line_;
    OB_RETURN_IF_ERROR(Expect('{'));
    if (Peek() == '}') {
      ++at_;
      return value;
    }
    for (;;) {
      Peek();
      const int line = line_;
      OB_ASSIGN_OR_RETURN(std::string key, String());
      if (value.Find(key) != nullptr) return AtLine(line, absl::StrCat("\"", key, "\" twice"));
      OB_RETURN_IF_ERROR(Expect(':'));
      OB_ASSIGN_OR_RETURN(LinedJson member, Value(depth + 1));
      value.members.emplace_back(std::move(key), std::move(member));
      if (Peek() != ',') break;
      ++at_;
    }
    OB_RETURN_IF_ERROR(Expect('}'));
    return value;
  }

  absl::StatusOr<LinedJson> Array(int depth) {
    LinedJson value;
    value.kind = LinedJson::Kind::kArray;
    value.line = line_;
    OB_RETURN_IF_ERROR(Expect('['));
    if (Peek() == ']') {
      ++at_;
      return value;
    }
    for (;;) {
      OB_ASSIGN_OR_RETURN(LinedJson item, Value(depth + 1));
      value.items.push_back(std::move(item));
      if (Peek() != ',') break;
      ++at_;
    }
    OB_RETURN_IF_ERROR(Expect(']'));
    return value;
  }

  const std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

const LinedJson* LinedJson::Find(std::string_view key) const {
  for (const auto& [name, value] : members)
    if (name == key) return &value;
  return nullptr;
}

absl::Status AtLine(int line, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("line ", line, ": ", std::string(what)));
}

absl::StatusOr<LinedJson> ParseLinedJson(std::string_view text) {
  if (text.size() > kJsonBytesMax)
    return absl::InvalidArgumentError(
        absl::StrCat(text.size(), " bytes; limit ", kJsonBytesMax));
  return Reader(text).Whole();
}

}  // namespace outboard::gateway
