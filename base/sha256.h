// SHA-256 (FIPS 180-4), in one call or piece by piece. Used for graph ids, blob names, stored keys
// and the ledger's chain.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

namespace outboard {

using Sha256Digest = std::array<uint8_t, 32>;

Sha256Digest Sha256(std::string_view bytes);

// Whether `text` is "sha256:" and 64 hex digits in lower case, which names files and certificates.
inline constexpr std::string_view kSha256Prefix = "sha256:";
bool IsSha256Name(std::string_view text);

// Hashes the bytes passed to Update, in order. Threads: one.
class Sha256Hasher {
 public:
  Sha256Hasher();
  ~Sha256Hasher();
  void Update(std::string_view bytes);
  // Call once; the hasher cannot be used afterwards.
  Sha256Digest Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace outboard
