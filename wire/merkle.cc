#include "wire/merkle.h"

#include <algorithm>
#include <bit>

#include "wire/limits.h"

namespace outboard::wire {

namespace {

constexpr uint8_t kChunkPrefix = 0, kNodePrefix = 1, kRootPrefix = 2;

Hash Digest(std::string_view head, std::string_view a, std::string_view b = {}) {
  Sha256Hasher hasher;
  hasher.Update(head);
  hasher.Update(a);
  hasher.Update(b);
  return hasher.Finish();
}

std::string_view Prefix(const uint8_t& byte) { return {reinterpret_cast<const char*>(&byte), 1}; }

}  // namespace

ChunkHasher::ChunkHasher() { hasher_.Update(Prefix(kChunkPrefix)); }
void ChunkHasher::Update(std::string_view bytes) { hasher_.Update(bytes); }
Hash ChunkHasher::Finish() { return hasher_.Finish(); }

Hash HashChunk(std::string_view chunk) { return Digest(Prefix(kChunkPrefix), chunk); }

Hash MerkleRoot(std::span<const Hash> chunks, uint64_t size_bytes) {
  // A stack of (height, hash) that merges equal heights builds the RFC 6962 shape without
  // recursion.
  std::vector<std::pair<int, Hash>> stack;
  auto join = [&stack] {
    Hash right = stack.back().second;
    stack.pop_back();
    auto& [height, left] = stack.back();
    left = Digest(Prefix(kNodePrefix), AsBytes(left), AsBytes(right));
    ++height;
  };
  for (const Hash& chunk : chunks) {
    stack.emplace_back(0, chunk);
    while (stack.size() > 1 && stack[stack.size() - 2].first == stack.back().first) join();
  }
  while (stack.size() > 1) join();
  std::string head(1, static_cast<char>(kRootPrefix));
  for (int shift = 0; shift < 64; shift += 8) {
    head.push_back(static_cast<char>(size_bytes >> shift & 0xff));
  }
  return Digest(head, AsBytes(stack.empty() ? Hash{} : stack[0].second));
}

BlobName NameBlob(std::string_view bytes) {
  BlobName name;
  for (size_t at = 0; at < bytes.size(); at += kBlobChunkBytes) {
    name.chunks.push_back(HashChunk(bytes.substr(at, kBlobChunkBytes)));
  }
  name.root = MerkleRoot(name.chunks, bytes.size());
  return name;
}

std::string ToHex(const Hash& hash) { return outboard::ToHex(AsBytes(hash)); }

std::optional<Hash> HashFromBytes(std::string_view bytes) {
  Hash hash;
  if (bytes.size() != hash.size()) return std::nullopt;
  std::copy(bytes.begin(), bytes.end(), hash.begin());
  return hash;
}

}  // namespace outboard::wire
