#include "client/files/safetensors_header.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace outboard::files {

namespace {

constexpr size_t kLengthBytes = 8;
constexpr size_t kAlignment = 64;

constexpr struct {
  std::string_view name;
  DType dtype;
} kDTypes[] = {
    {"BOOL", DType::kBool},      {"I8", DType::kI8},          {"U8", DType::kU8},
    {"I16", DType::kI16},        {"U16", DType::kU16},        {"I32", DType::kI32},
    {"U32", DType::kU32},        {"I64", DType::kI64},        {"U64", DType::kU64},
    {"F8_E4M3", DType::kF8E4M3}, {"F8_E5M2", DType::kF8E5M2}, {"F16", DType::kF16},
    {"BF16", DType::kBF16},      {"F32", DType::kF32},        {"F64", DType::kF64},
};

absl::Status Wrong(std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("safetensors: ", std::string(what)));
}

absl::Status WrongArray(const SafetensorsArray& array, std::string_view what) {
  return Wrong(absl::StrCat("array \"", array.name.substr(0, 200), "\": ", std::string(what)));
}

// The little of JSON that a header has: objects, arrays of whole numbers, strings.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  size_t at() const { return at_; }
  std::string_view From(size_t begin) const { return text_.substr(begin, at_ - begin); }

  bool AtEnd() {
    SkipSpace();
    return at_ == text_.size();
  }
  bool Take(char c) {
    SkipSpace();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  absl::StatusOr<std::string> String() {
    if (!Take('"')) return Error("a string is expected");
    std::string out;
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == '"') return out;
      if (static_cast<unsigned char>(c) < 0x20) return Error("a control character in a string");
      if (c != '\\') {
        out.push_back(c);
      } else if (absl::Status status = Escape(out); !status.ok()) {
        return status;
      }
    }
    return Error("a string does not end");
  }

  absl::StatusOr<int64_t> Number() {
    SkipSpace();
    const size_t begin = at_;
    int64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      if (__builtin_mul_overflow(value, int64_t{10}, &value) ||
          __builtin_add_overflow(value, int64_t{text_[at_] - '0'}, &value))
        return Error("a number above 2^63");
    }
    if (at_ == begin) return Error("a whole number is expected");
    return value;
  }

  absl::StatusOr<std::vector<int64_t>> Numbers(size_t count_max) {
    std::vector<int64_t> numbers;
    if (!Take('[')) return Error("a list is expected");
    if (Take(']')) return numbers;
    do {
      if (numbers.size() == count_max) return Error("a list is too long");
      OB_ASSIGN_OR_RETURN(const int64_t number, Number());
      numbers.push_back(number);
    } while (Take(','));
    if (!Take(']')) return Error("\"]\" is expected");
    return numbers;
  }

  // Calls `member` for each name of an object, to read its value.
  template <typename Member>
  absl::Status Object(Member member) {
    if (!Take('{')) return Error("an object is expected");
    if (Take('}')) return absl::OkStatus();
    do {
      OB_ASSIGN_OR_RETURN(std::string name, String());
      if (!Take(':')) return Error("\":\" is expected");
      OB_RETURN_IF_ERROR(member(std::move(name)));
    } while (Take(','));
    return Take('}') ? absl::OkStatus() : Error("\"}\" is expected");
  }

  absl::Status Error(std::string_view what) const {
    return Wrong(absl::StrCat("at byte ", kLengthBytes + at_, ": ", std::string(what)));
  }

 private:
  void SkipSpace() {
    while (at_ < text_.size() && std::strchr(" \t\r\n", text_[at_]) != nullptr && text_[at_] != 0)
      ++at_;
  }

  absl::StatusOr<uint32_t> Hex4() {
    uint32_t value = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      if (at_ == text_.size()) return Error("an escape does not end");
      const char c = text_[at_];
      const uint32_t digit = c >= '0' && c <= '9'   ? c - '0'
                             : c >= 'a' && c <= 'f' ? c - 'a' + 10
                             : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                    : 16;
      if (digit == 16) return Error("an escape has four hex digits");
      value = value * 16 + digit;
    }
    return value;
  }

  absl::Status Escape(std::string& out) {
    constexpr std::string_view kNames = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    if (at_ == text_.size()) return Error("an escape does not end");
    const char c = text_[at_++];
    if (const size_t found = kNames.find(c); found != std::string_view::npos) {
      out.push_back(kMeanings[found]);
      return absl::OkStatus();
    }
    if (c != 'u') return Error("no such escape");
    OB_ASSIGN_OR_RETURN(uint32_t code, Hex4());
    if (code >= 0xd800 && code < 0xdc00) {
      if (text_.substr(at_, 2) != "\\u") return Error("half a surrogate pair");
      at_ += 2;
      OB_ASSIGN_OR_RETURN(const uint32_t low, Hex4());
      if (low < 0xdc00 || low >= 0xe000) return Error("half a surrogate pair");
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xdc00 && code < 0xe000) {
      return Error("half a surrogate pair");
    }
    AppendUtf8(code, out);
    return absl::OkStatus();
  }

  static void AppendUtf8(uint32_t code, std::string& out) {
    const auto tail = [&](int shift) {
      out.push_back(static_cast<char>(0x80 | (code >> shift & 0x3f)));
    };
    if (code < 0x80) {
      out.push_back(static_cast<char>(code));
    } else if (code < 0x800) {
      out.push_back(static_cast<char>(0xc0 | code >> 6));
      tail(0);
    } else if (code < 0x10000) {
      out.push_back(static_cast<char>(0xe0 | code >> 12));
      tail(6);
      tail(0);
    } else {
      out.push_back(static_cast<char>(0xf0 | code >> 18));
      tail(12);
      tail(6);
      tail(0);
    }
  }

  const std::string_view text_;
  size_t at_ = 0;
};

absl::Status ReadArray(Reader& reader, SafetensorsArray& array) {
  constexpr size_t kRankMax = 16;
  std::string dtype;
  std::vector<int64_t> offsets;
  int seen = 0;
  OB_RETURN_IF_ERROR(reader.Object([&](const std::string& name) -> absl::Status {
    const int bit = name == "dtype" ? 1 : name == "shape" ? 2 : name == "data_offsets" ? 4 : 0;
    if (bit == 0 || (seen & bit) != 0)
      return WrongArray(array, "has a dtype, a shape and data_offsets, each once, and no more");
    seen |= bit;
    if (bit == 1) {
      OB_ASSIGN_OR_RETURN(dtype, reader.String());
    } else if (bit == 2) {
      OB_ASSIGN_OR_RETURN(array.dims, reader.Numbers(kRankMax));
    } else {
      OB_ASSIGN_OR_RETURN(offsets, reader.Numbers(2));
    }
    return absl::OkStatus();
  }));
  if (seen != 7 || offsets.size() != 2)
    return WrongArray(array, "has a dtype, a shape and data_offsets, each once, and no more");
  const auto known = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                  [&](const auto& candidate) { return candidate.name == dtype; });
  if (known == std::end(kDTypes)) {
    return absl::UnimplementedError(absl::StrCat("safetensors: array \"", array.name.substr(0, 200),
                                                 "\" is of dtype ", dtype.substr(0, 20),
                                                 ", which tensors here do not have"));
  }
  array.dtype = known->dtype;
  int64_t bytes = ByteWidth(array.dtype);
  for (const int64_t dim : array.dims) {
    if (__builtin_mul_overflow(bytes, dim, &bytes)) return WrongArray(array, "is too large");
  }
  if (offsets[1] < offsets[0] || offsets[1] - offsets[0] != bytes)
    return WrongArray(array, absl::StrCat("its shape takes ", bytes, " bytes, its offsets do not"));
  array.offset = static_cast<uint64_t>(offsets[0]);
  array.size_bytes = static_cast<uint64_t>(bytes);
  return absl::OkStatus();
}

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) {
      constexpr char kHex[] = "0123456789abcdef";
      absl::StrAppend(&out, "\\u00", std::string(1, kHex[c >> 4]), std::string(1, kHex[c & 15]));
      continue;
    }
    if (c == '"' || c == '\\') out.push_back('\\');
    out.push_back(c);
  }
  return out + "\"";
}

}  // namespace

absl::StatusOr<uint64_t> SafetensorsHeaderBytes(std::string_view first, uint64_t file_bytes) {
  if (first.size() < kLengthBytes || file_bytes < kLengthBytes)
    return Wrong("shorter than a header's length");
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;)
    length = length << 8 | static_cast<unsigned char>(first[i]);
  if (length > file_bytes - kLengthBytes) return Wrong("the header is longer than the file");
  if (length > kSafetensorsHeaderBytesMax) {
    return absl::ResourceExhaustedError(absl::StrCat("safetensors: a header of ", length,
                                                     " bytes; limit ", kSafetensorsHeaderBytesMax));
  }
  return kLengthBytes + length;
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view first,
                                                         uint64_t file_bytes) {
  SafetensorsHeader header;
  OB_ASSIGN_OR_RETURN(header.header_bytes, SafetensorsHeaderBytes(first, file_bytes));
  if (first.size() < header.header_bytes) return Wrong("the header is cut off");
  Reader reader(first.substr(kLengthBytes, header.header_bytes - kLengthBytes));
  std::set<std::string> names;
  OB_RETURN_IF_ERROR(reader.Object([&](std::string name) -> absl::Status {
    if (!names.insert(name).second) return reader.Error("a name occurs twice");
    if (name == kSafetensorsMetadataName) {
      const size_t begin = reader.at();
      OB_RETURN_IF_ERROR(
          reader.Object([&](const std::string&) { return reader.String().status(); }));
      header.metadata = std::string(reader.From(begin));
      return absl::OkStatus();
    }
    SafetensorsArray& array = header.arrays.emplace_back();
    array.name = std::move(name);
    return ReadArray(reader, array);
  }));
  if (!reader.AtEnd()) return reader.Error("the header continues after its object");
  std::sort(header.arrays.begin(), header.arrays.end(), [](const auto& a, const auto& b) {
    return std::tie(a.offset, a.size_bytes, a.name) < std::tie(b.offset, b.size_bytes, b.name);
  });
  uint64_t end = 0;
  for (const SafetensorsArray& array : header.arrays) {
    if (array.offset != end) return WrongArray(array, "there is a gap before it, or an overlap");
    end += array.size_bytes;
  }
  if (end != file_bytes - header.header_bytes)
    return Wrong(absl::StrCat("the arrays take ", end, " bytes, the file has ",
                              file_bytes - header.header_bytes));
  return header;
}

std::string WriteSafetensorsMetadata(
    std::span<const std::pair<std::string, std::string>> texts_by_name) {
  std::string json = "{";
  for (const auto& [name, text] : texts_by_name)
    absl::StrAppend(&json, json.size() > 1 ? "," : "", Quoted(name), ":", Quoted(text));
  return json + "}";
}

std::string WriteSafetensorsHeader(const SafetensorsHeader& header) {
  std::string json = "{";
  if (!header.metadata.empty())
    absl::StrAppend(&json, "\"", kSafetensorsMetadataName, "\":", header.metadata);
  uint64_t offset = 0;
  for (const SafetensorsArray& array : header.arrays) {
    const auto known = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                    [&](const auto& each) { return each.dtype == array.dtype; });
    OB_CHECK(known != std::end(kDTypes));
    absl::StrAppend(&json, json.size() > 1 ? "," : "", Quoted(array.name), ":{\"dtype\":\"",
                    std::string(known->name), "\",\"shape\":[");
    for (size_t i = 0; i < array.dims.size(); ++i)
      absl::StrAppend(&json, i > 0 ? "," : "", array.dims[i]);
    absl::StrAppend(&json, "],\"data_offsets\":[", offset, ",", offset + array.size_bytes, "]}");
    offset += array.size_bytes;
  }
  json += "}";
  // The format allows spaces behind the object.
  while ((kLengthBytes + json.size()) % kAlignment != 0) json.push_back(' ');
  std::string bytes(kLengthBytes, '\0');
  for (size_t i = 0; i < kLengthBytes; ++i)
    bytes[i] = static_cast<char>(static_cast<uint64_t>(json.size()) >> (8 * i) & 0xff);
  return bytes + json;
}

}  // namespace outboard::files
