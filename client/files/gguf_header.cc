#include "client/files/gguf_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/printable.h"

namespace outboard::files {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie");

namespace {

constexpr uint64_t kRankMax = 4;          // GGML_MAX_DIMS
constexpr uint64_t kNameBytesMax = 4096;  // the format asks for 64; some writers exceed it
constexpr uint32_t kDefaultAlignment = 32;
constexpr uint32_t kAlignmentMax = 1 << 20;
constexpr char kAlignmentName[] = "general.alignment";
constexpr uint32_t kList = 9;  // the code of a value that is one

absl::Status Wrong(std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("GGUF: ", std::string(what)));
}

// A name for a message: bytes of a stranger, cut.
std::string Shown(std::string_view name) {
  return absl::StrCat("\"", Printable(name, /*bytes_max=*/200), "\"");
}

class Reader {
 public:
  Reader(std::string_view first, uint64_t file_bytes) : text_(first), file_bytes_(file_bytes) {}

  uint64_t at() const { return at_; }

  template <typename T>
  absl::StatusOr<T> Number() {
    OB_ASSIGN_OR_RETURN(const std::string_view bytes, Take(sizeof(T)));
    T value{};
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }

  absl::StatusOr<std::string> String() {
    OB_ASSIGN_OR_RETURN(const uint64_t length, Number<uint64_t>());
    OB_ASSIGN_OR_RETURN(const std::string_view bytes, Take(length));
    return std::string(bytes);
  }

  absl::StatusOr<std::string> Name() {
    OB_ASSIGN_OR_RETURN(std::string name, String());
    if (name.empty() || name.size() > kNameBytesMax)
      return Wrong(absl::StrCat("at byte ", at_, ": a name of ", name.size(), " bytes; limit ",
                                kNameBytesMax));
    return name;
  }

  absl::StatusOr<bool> Bool() {
    OB_ASSIGN_OR_RETURN(const auto byte, Number<uint8_t>());
    if (byte > 1) return Wrong(absl::StrCat("at byte ", at_, ": a bool is 0 or 1"));
    return byte == 1;
  }

  // That `count` things of `bytes_each` and more can follow: said before room is made for them.
  absl::Status CheckCount(uint64_t count, uint64_t bytes_each) const {
    if (count > (file_bytes_ - at_) / bytes_each)
      return Wrong(
          absl::StrCat("at byte ", at_, ": ", count, " entries are more than the file can hold"));
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<std::string_view> Take(uint64_t bytes) {
    if (bytes > file_bytes_ - at_) return Wrong("the header is longer than the file");
    if (bytes > kGgufHeaderBytesMax - at_)
      return absl::ResourceExhaustedError(
          absl::StrCat("GGUF: a header of more than ", kGgufHeaderBytesMax, " bytes"));
    if (bytes > text_.size() - at_)
      return absl::OutOfRangeError("GGUF: the header is longer than the bytes given");
    const std::string_view taken = text_.substr(at_, bytes);
    at_ += bytes;
    return taken;
  }

  const std::string_view text_;
  const uint64_t file_bytes_;
  uint64_t at_ = 0;
};

// Calls `as` with a function that reads one value of this code's type. Integers become int64_t, but
// for those of 64 bits without a sign.
template <typename As>
absl::Status OfCode(uint32_t code, Reader& reader, As as) {
  const auto whole = [&]<typename T>(T) {
    using Wide = std::conditional_t<std::is_same_v<T, uint64_t>, uint64_t, int64_t>;
    return as([&reader]() -> absl::StatusOr<Wide> {
      OB_ASSIGN_OR_RETURN(const T number, reader.Number<T>());
      return static_cast<Wide>(number);
    });
  };
  const auto fraction = [&]<typename T>(T) {
    return as([&reader]() -> absl::StatusOr<double> {
      OB_ASSIGN_OR_RETURN(const T number, reader.Number<T>());
      return static_cast<double>(number);
    });
  };
  switch (code) {
    case 0: return whole(uint8_t{});
    case 1: return whole(int8_t{});
    case 2: return whole(uint16_t{});
    case 3: return whole(int16_t{});
    case 4: return whole(uint32_t{});
    case 5: return whole(int32_t{});
    case 6: return fraction(float{});
    case 7: return as([&reader] { return reader.Bool(); });
    case 8: return as([&reader] { return reader.String(); });
    case 10: return whole(uint64_t{});
    case 11: return whole(int64_t{});
    case 12: return fraction(double{});
    case kList: return absl::UnimplementedError("GGUF: nested arrays are not supported");
    default: return Wrong(absl::StrCat("a value of type ", code, ", which there is not"));
  }
}

absl::Status ReadList(Reader& reader, GgufValue& value) {
  OB_ASSIGN_OR_RETURN(const auto code, reader.Number<uint32_t>());
  OB_ASSIGN_OR_RETURN(const auto count, reader.Number<uint64_t>());
  OB_RETURN_IF_ERROR(reader.CheckCount(count, code == 8 ? sizeof(uint64_t) : 1));
  return OfCode(code, reader, [&](auto read) -> absl::Status {
    std::vector<typename decltype(read())::value_type> list;
    for (uint64_t i = 0; i < count; ++i) {
      OB_ASSIGN_OR_RETURN(auto element, read());
      list.push_back(std::move(element));
    }
    value = std::move(list);
    return absl::OkStatus();
  });
}

absl::Status ReadValue(Reader& reader, GgufValue& value) {
  OB_ASSIGN_OR_RETURN(const auto code, reader.Number<uint32_t>());
  if (code == kList) return ReadList(reader, value);
  return OfCode(code, reader, [&](auto read) -> absl::Status {
    OB_ASSIGN_OR_RETURN(value, read());
    return absl::OkStatus();
  });
}

// With an offset from where the arrays begin, which is not known yet.
absl::StatusOr<GgufArray> ReadArray(Reader& reader) {
  GgufArray array;
  OB_ASSIGN_OR_RETURN(array.name, reader.Name());
  const auto wrong = [&](std::string_view what) {
    return Wrong(absl::StrCat("array ", Shown(array.name), ": ", std::string(what)));
  };
  OB_ASSIGN_OR_RETURN(const auto rank, reader.Number<uint32_t>());
  if (rank > kRankMax) return wrong(absl::StrCat(rank, " axes; limit ", kRankMax));
  // The lengths multiply in any order, also where one of them is 0.
  int64_t count = 1, extent = 1;
  for (uint32_t i = 0; i < rank; ++i) {
    OB_ASSIGN_OR_RETURN(const auto dim, reader.Number<int64_t>());
    if (dim < 0 || __builtin_mul_overflow(extent, std::max<int64_t>(dim, 1), &extent))
      return wrong("is too large");
    count *= dim;
    array.dims.push_back(dim);
  }
  OB_ASSIGN_OR_RETURN(const auto code, reader.Number<uint32_t>());
  OB_ASSIGN_OR_RETURN(array.offset, reader.Number<uint64_t>());
  array.layout = FindGgmlLayout(code);
  if (array.layout == nullptr)
    return absl::UnimplementedError(absl::StrCat(
        "GGUF: array ", Shown(array.name), " is of GGML type ", code, ", which is not known here"));
  // Rows are whole blocks.
  if (rank > 0 ? array.dims[0] % array.layout->block_elements != 0
               : array.layout->block_elements != 1)
    return wrong(absl::StrCat("its rows are not whole blocks of ", array.layout->block_elements,
                              " elements, as ", std::string(array.layout->name), " has"));
  int64_t bytes = 0;
  if (__builtin_mul_overflow(count / array.layout->block_elements, array.layout->block_bytes,
                             &bytes))
    return wrong("is too large");
  array.size_bytes = static_cast<uint64_t>(bytes);
  std::reverse(array.dims.begin(), array.dims.end());
  return array;
}

absl::StatusOr<uint64_t> AlignmentOf(const GgufHeader& header) {
  for (const auto& [name, value] : header.metadata) {
    if (name != kAlignmentName) continue;
    const auto* number = std::get_if<int64_t>(&value);
    if (number == nullptr || *number <= 0 || *number > kAlignmentMax ||
        !std::has_single_bit(static_cast<uint64_t>(*number)))
      return Wrong("general.alignment is a power of two, at most 2^20");
    return static_cast<uint64_t>(*number);
  }
  return uint64_t{kDefaultAlignment};
}

// Turns offsets into those of the file, where each array lies alone.
absl::Status Place(uint64_t header_bytes, uint64_t file_bytes, GgufHeader& header) {
  OB_ASSIGN_OR_RETURN(const uint64_t alignment, AlignmentOf(header));
  const uint64_t begin = (header_bytes + alignment - 1) / alignment * alignment;
  const uint64_t room = begin < file_bytes ? file_bytes - begin : 0;
  std::vector<const GgufArray*> by_place;
  for (GgufArray& array : header.arrays) {
    if (array.offset % alignment != 0)
      return Wrong(absl::StrCat("array ", Shown(array.name), ": at ", array.offset,
                                ", no multiple of ", alignment));
    if (array.offset > room || array.size_bytes > room - array.offset)
      return Wrong(absl::StrCat("array ", Shown(array.name), ": ", array.size_bytes, " bytes at ",
                                array.offset, ", but ", room, " are there"));
    array.offset += begin;
    if (array.size_bytes > 0) by_place.push_back(&array);
  }
  std::sort(by_place.begin(), by_place.end(),
            [](const auto* a, const auto* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < by_place.size(); ++i)
    if (by_place[i]->offset < by_place[i - 1]->offset + by_place[i - 1]->size_bytes)
      return Wrong(absl::StrCat("arrays ", Shown(by_place[i - 1]->name), " and ",
                                Shown(by_place[i]->name), " overlap"));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GgufHeader> ParseGgufHeader(std::string_view first, uint64_t file_bytes) {
  // The least that a value takes is a name of one byte, a code and a byte; an array, no axes.
  constexpr uint64_t kValueBytesMin = 8 + 1 + 4 + 1, kArrayBytesMin = 8 + 1 + 4 + 4 + 8;
  Reader reader(first.substr(0, file_bytes), file_bytes);
  OB_ASSIGN_OR_RETURN(const auto magic, reader.Number<uint32_t>());
  if (magic != 0x46554747) return Wrong("does not begin with \"GGUF\"");
  OB_ASSIGN_OR_RETURN(const auto version, reader.Number<uint32_t>());
  if (version << 16 == 0)
    return absl::UnimplementedError("GGUF: big-endian files are not supported");
  if (version != 2 && version != 3)
    return Wrong(absl::StrCat("version ", version, "; 2 and 3 are known"));
  OB_ASSIGN_OR_RETURN(const auto array_count, reader.Number<uint64_t>());
  OB_ASSIGN_OR_RETURN(const auto value_count, reader.Number<uint64_t>());
  OB_RETURN_IF_ERROR(reader.CheckCount(value_count, kValueBytesMin));
  OB_RETURN_IF_ERROR(reader.CheckCount(array_count, kArrayBytesMin));

  GgufHeader header;
  std::set<std::string> names;
  for (uint64_t i = 0; i < value_count; ++i) {
    OB_ASSIGN_OR_RETURN(std::string name, reader.Name());
    if (!names.insert(name).second) return Wrong(absl::StrCat(Shown(name), " has two values"));
    GgufValue& value = header.metadata.emplace_back().second;
    header.metadata.back().first = std::move(name);
    OB_RETURN_IF_ERROR(ReadValue(reader, value));
  }
  names.clear();
  for (uint64_t i = 0; i < array_count; ++i) {
    OB_ASSIGN_OR_RETURN(GgufArray array, ReadArray(reader));
    if (!names.insert(array.name).second)
      return Wrong(absl::StrCat("two arrays are named ", Shown(array.name)));
    header.arrays.push_back(std::move(array));
  }
  OB_RETURN_IF_ERROR(Place(reader.at(), file_bytes, header));
  return header;
}

}  // namespace outboard::files
