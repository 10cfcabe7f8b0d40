// Names of blobs: SHA-256 over 4 MiB chunks, combined by a domain-separated Merkle tree.
//
//   chunk hash = SHA-256(0x00 || chunk bytes)
//   node       = SHA-256(0x01 || left || right), left subtree the largest power of two below the
//                count (RFC 6962)
//   root       = SHA-256(0x02 || size in bytes, 8 bytes little-endian || top node; 32 zero bytes
//                for an empty blob)
//
// The three prefixes ensure that a chunk, a pair of hashes and a whole blob never have the same
// name, even if there is one chunk only. The size in the root distinguishes two lists of chunks
// with different last chunks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hex.h"
#include "base/sha256.h"

namespace outboard::wire {

using Hash = Sha256Digest;

// Hashes one chunk piece by piece: a receiver compares the result before the chunk becomes visible.
class ChunkHasher {
 public:
  ChunkHasher();
  void Update(std::string_view bytes);
  Hash Finish();

 private:
  Sha256Hasher hasher_;
};

Hash HashChunk(std::string_view chunk);
Hash MerkleRoot(std::span<const Hash> chunks, uint64_t size_bytes);

// A blob's name (its Merkle root) and the hashes of its chunks, in order.
struct BlobName {
  Hash root;
  std::vector<Hash> chunks;
};
BlobName NameBlob(std::string_view bytes);

using outboard::ToHex;
std::string ToHex(const Hash& hash);
// Returns nullopt unless `bytes` has the length of a hash.
std::optional<Hash> HashFromBytes(std::string_view bytes);
inline std::string_view AsBytes(const Hash& hash) {
  return {reinterpret_cast<const char*>(hash.data()), hash.size()};
}

}  // namespace outboard::wire
