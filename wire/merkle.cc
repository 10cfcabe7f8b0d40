#include "wire/merkle.h"

#include <openssl/evp.h>

#include <algorithm>
#include <bit>

#include "wire/limits.h"

namespace outboard::wire {

struct ChunkHasher::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

namespace {

constexpr uint8_t kChunkPrefix = 0, kNodePrefix = 1, kRootPrefix = 2;

Hash Digest(std::string_view head, std::string_view a, std::string_view b = {}) {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  Hash out{};
  unsigned int length = 0;
  EVP_DigestInit_ex(context, EVP_sha256(), nullptr);
  EVP_DigestUpdate(context, head.data(), head.size());
  EVP_DigestUpdate(context, a.data(), a.size());
  EVP_DigestUpdate(context, b.data(), b.size());
  EVP_DigestFinal_ex(context, out.data(), &length);
  EVP_MD_CTX_free(context);
  return out;
}

std::string_view Prefix(const uint8_t& byte) { return {reinterpret_cast<const char*>(&byte), 1}; }

}  // namespace

ChunkHasher::ChunkHasher() : state_(std::make_unique<State>()) {
  EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr);
  EVP_DigestUpdate(state_->context, &kChunkPrefix, 1);
}
ChunkHasher::~ChunkHasher() = default;
void ChunkHasher::Update(std::string_view bytes) {
  EVP_DigestUpdate(state_->context, bytes.data(), bytes.size());
}
Hash ChunkHasher::Finish() {
  Hash out{};
  unsigned int length = 0;
  EVP_DigestFinal_ex(state_->context, out.data(), &length);
  return out;
}

Hash Sha256(std::string_view bytes) { return Digest({}, bytes); }
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

std::string ToHex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (unsigned char byte : bytes) {
    out.push_back(kDigits[byte >> 4]);
    out.push_back(kDigits[byte & 15]);
  }
  return out;
}
std::string ToHex(const Hash& hash) { return ToHex(AsBytes(hash)); }

std::optional<Hash> HashFromBytes(std::string_view bytes) {
  Hash hash;
  if (bytes.size() != hash.size()) return std::nullopt;
  std::copy(bytes.begin(), bytes.end(), hash.begin());
  return hash;
}

bool FromHex(std::string_view hex, std::span<uint8_t> out) {
  if (hex.size() != out.size() * 2) return false;
  auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
  };
  for (size_t i = 0; i < out.size(); ++i) {
    int high = digit(hex[2 * i]), low = digit(hex[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    out[i] = static_cast<uint8_t>(high * 16 + low);
  }
  return true;
}

}  // namespace outboard::wire
