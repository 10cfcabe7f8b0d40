#include "worker/groups/link_greeting.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstring>

#include "base/check.h"
#include "base/random_bytes.h"

namespace outboard::worker {
namespace {

constexpr std::string_view kBegins = "OBL1";
constexpr size_t kNonceBytes = 32, kSessionBytes = 16, kCodeBytes = 32;
constexpr size_t kHeadBytes = kClaimBytes - kCodeBytes;  // of a claim: all but its code
static_assert(kChallengeBytes == kBegins.size() + kNonceBytes);
static_assert(kHeadBytes == kSessionBytes + 8 + 4 + 4 + kNonceBytes);

std::string Hmac(std::string_view key, std::string_view bytes) {
  unsigned char code[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  OB_CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), code,
                &size) != nullptr);
  OB_CHECK(size == kCodeBytes);
  return {reinterpret_cast<const char*>(code), size};
}

// `who` keeps a claim from being sent back as a proof.
std::string CodeOf(std::string_view who, std::string_view challenge, std::string_view head,
                   std::string_view attach_token) {
  const std::string key = Hmac(attach_token, "outboard group link");
  std::string bytes(who);
  bytes.append(challenge).append(head);
  return Hmac(key, bytes);
}
std::string ClaimCode(std::string_view challenge, std::string_view claim, std::string_view token) {
  return CodeOf("claim", challenge, claim.substr(0, kHeadBytes), token);
}

bool AreSame(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

template <typename T>
void Append(std::string& to, T number) {
  to.append(reinterpret_cast<const char*>(&number), sizeof number);
}

}  // namespace

absl::StatusOr<std::string> MakeChallenge() {
  OB_ASSIGN_OR_RETURN(const std::string nonce, RandomBytes(kNonceBytes));
  return std::string(kBegins) + nonce;
}

bool IsChallenge(std::string_view bytes) {
  return bytes.size() == kChallengeBytes && bytes.starts_with(kBegins);
}

absl::StatusOr<std::string> MakeClaim(const LinkName& name, std::string_view challenge,
                                      std::string_view attach_token) {
  OB_CHECK(name.session_id.size() == kSessionBytes);
  OB_ASSIGN_OR_RETURN(const std::string nonce, RandomBytes(kNonceBytes));
  std::string claim = name.session_id;
  Append(claim, name.placement);
  Append(claim, name.from);
  Append(claim, name.to);
  claim += nonce;
  claim += ClaimCode(challenge, claim, attach_token);
  return claim;
}

LinkName NameIn(std::string_view claim) {
  OB_CHECK(claim.size() == kClaimBytes);
  LinkName name{.session_id = std::string(claim.substr(0, kSessionBytes))};
  const char* numbers = claim.data() + kSessionBytes;
  std::memcpy(&name.placement, numbers, 8);
  std::memcpy(&name.from, numbers + 8, 4);
  std::memcpy(&name.to, numbers + 12, 4);
  return name;
}

bool ClaimIsRight(std::string_view challenge, std::string_view claim,
                  std::string_view attach_token) {
  return claim.size() == kClaimBytes &&
         AreSame(claim.substr(kHeadBytes), ClaimCode(challenge, claim, attach_token));
}

std::string MakeProof(std::string_view challenge, std::string_view claim,
                      std::string_view attach_token) {
  return CodeOf("proof", challenge, claim.substr(0, kHeadBytes), attach_token);
}

bool ProofIsRight(std::string_view challenge, std::string_view claim, std::string_view proof,
                  std::string_view attach_token) {
  return AreSame(proof, MakeProof(challenge, claim, attach_token));
}

}  // namespace outboard::worker
