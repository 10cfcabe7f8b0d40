// Recordings of sessions as they went over the wire (tests/e2e/recorded/README.md): a list of
// records, each a letter for its kind, the length of its bytes (u32, little-endian) and the bytes.
// At most a few hundred KB; reading a file that is not a recording fails the caller's test.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

namespace outboard::test {

struct WireRecord {
  enum Kind : char {
    kStream = 'B',       // a stream begins; no bytes
    kClientFrame = 'C',  // serialised, as it was sent
    kServerFrame = 'S',
    kCut =
        'X',  // the stream was broken here; the last frames of the server had not reached the
              // client
    kEnd = 'E',  // the server ended the stream; its status code in one byte
  };
  Kind kind;
  std::string bytes;
};

inline void WriteRecord(std::ostream& out, const WireRecord& record) {
  const auto length = static_cast<uint32_t>(record.bytes.size());
  char header[5] = {record.kind};
  for (int i = 0; i < 4; ++i) header[1 + i] = static_cast<char>(length >> (8 * i));
  out.write(header, sizeof header);
  out.write(record.bytes.data(), static_cast<std::streamsize>(record.bytes.size()));
}

// Nothing where the bytes are no recording.
inline std::optional<std::vector<WireRecord>> ReadRecords(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::vector<WireRecord> records;
  for (size_t at = 0; at < all.size();) {
    if (all.size() - at < 5) return std::nullopt;
    uint32_t length = 0;
    for (int i = 0; i < 4; ++i)
      length |= static_cast<uint32_t>(static_cast<uint8_t>(all[at + 1 + i])) << (8 * i);
    if (all.size() - at - 5 < length) return std::nullopt;
    records.push_back({static_cast<WireRecord::Kind>(all[at]), all.substr(at + 5, length)});
    at += 5 + length;
  }
  if (records.empty()) return std::nullopt;
  return records;
}

}  // namespace outboard::test
