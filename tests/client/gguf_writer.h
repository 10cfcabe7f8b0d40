// Writes GGUF files for tests, including invalid ones: counts, offsets and types are written as
// given.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace outboard::test {

class Gguf {
 public:
  Gguf& Magic(std::string magic) { return magic_ = std::move(magic), *this; }
  Gguf& Version(uint32_t version) { return version_ = version, *this; }
  Gguf& ArrayCount(uint64_t count) { return claimed_arrays_ = count, *this; }
  Gguf& ValueCount(uint64_t count) { return claimed_values_ = count, *this; }
  Gguf& Alignment(uint32_t alignment) {
    alignment_ = alignment;
    return Value("general.alignment", 4, alignment);
  }

  template <typename T>
  Gguf& Value(std::string_view name, uint32_t code, T number) {
    ++values_count_;
    values_ += Named(name) + Bytes(code) + Bytes(number);
    return *this;
  }
  Gguf& Text(std::string_view name, std::string_view text) {
    Value(name, 8, static_cast<uint64_t>(text.size()));
    return Raw(text);
  }
  template <typename T>
  Gguf& List(std::string_view name, uint32_t code, const std::vector<T>& numbers) {
    Value(name, 9, code).RawNumber(numbers.size());
    for (const T number : numbers) values_ += Bytes(number);
    return *this;
  }
  Gguf& Texts(std::string_view name, const std::vector<std::string>& texts) {
    Value(name, 9, uint32_t{8}).RawNumber(texts.size());
    for (const std::string& text : texts) values_ += Named(text);
    return *this;
  }
  // After the last value.
  Gguf& Raw(std::string_view bytes) { return values_ += bytes, *this; }
  Gguf& RawNumber(uint64_t number) { return values_ += Bytes(number), *this; }

  Gguf& Array(std::string_view name, const std::vector<int64_t>& dims, uint32_t code,
              std::string_view bytes) {
    ArrayAt(name, dims, code, data_.size());
    data_ += bytes;
    while (data_.size() % alignment_ != 0) data_.push_back('\0');
    return *this;
  }
  Gguf& ArrayAt(std::string_view name, const std::vector<int64_t>& dims, uint32_t code,
                uint64_t offset) {
    ++arrays_count_;
    arrays_ += Named(name) + Bytes(static_cast<uint32_t>(dims.size()));
    for (const int64_t dim : dims) arrays_ += Bytes(dim);
    arrays_ += Bytes(code) + Bytes(offset);
    return *this;
  }

  std::string Write() const {
    std::string file = magic_ + Bytes(version_);
    file += Bytes(claimed_arrays_ != 0 ? claimed_arrays_ : arrays_count_);
    file += Bytes(claimed_values_ != 0 ? claimed_values_ : values_count_);
    file += values_ + arrays_;
    while (file.size() % alignment_ != 0) file.push_back('\0');
    return file + data_;
  }

 private:
  template <typename T>
  static std::string Bytes(T number) {
    std::string bytes(sizeof number, '\0');
    std::memcpy(bytes.data(), &number, sizeof number);
    return bytes;
  }
  static std::string Named(std::string_view text) {
    return Bytes(static_cast<uint64_t>(text.size())) + std::string(text);
  }

  std::string magic_ = "GGUF";
  uint32_t version_ = 3, alignment_ = 32;
  uint64_t claimed_arrays_ = 0, claimed_values_ = 0, arrays_count_ = 0, values_count_ = 0;
  std::string values_, arrays_, data_;
};

}  // namespace outboard::test
