// How two workers of a session on several show each other, over a connection that anybody could
// have made, that they have its attach token. Neither sends the token.
//
//   who connects                          who was connected to
//                       <-- challenge --  a nonce of its own
//   claim: which link,  -- claim -->      checks the code
//   a nonce, a code
//   checks the code     <-- proof --      a code over both nonces
//
// Codes are HMAC-SHA256 with a key made of the token, over both nonces and the name of the link, so
// one that was overheard is good for nothing else. What follows a proof is not encrypted: the
// address belongs to a network that only workers reach.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace outboard::worker {

// A link is between two ranks of one placement of a session. `from` is of the worker that connects.
struct LinkName {
  std::string session_id;  // 16 bytes
  uint64_t placement = 0;
  uint32_t from = 0, to = 0;
  auto operator<=>(const LinkName&) const = default;
};

// That of a link between two workers of the session, which only watches (group_link.h): by the
// first rank of each. No session has so many ranks that it could be that of another link.
inline constexpr uint32_t kWatchBit = uint32_t{1} << 31;
inline bool IsWatch(const LinkName& name) { return (name.from & kWatchBit) != 0; }
inline LinkName MakeWatch(LinkName name) {
  name.from |= kWatchBit;
  name.to |= kWatchBit;
  return name;
}

inline constexpr size_t kChallengeBytes = 36, kClaimBytes = 96, kProofBytes = 32;

// Errors: UNAVAILABLE  the system gives no random bytes
absl::StatusOr<std::string> MakeChallenge();
absl::StatusOr<std::string> MakeClaim(const LinkName& name, std::string_view challenge,
                                      std::string_view attach_token);
std::string MakeProof(std::string_view challenge, std::string_view claim,
                      std::string_view attach_token);

// Of a worker's connection, and not of whatever else listens or speaks there.
bool IsChallenge(std::string_view bytes);
// What a claim says, which nobody has checked yet. Requires kClaimBytes.
LinkName NameIn(std::string_view claim);
bool ClaimIsRight(std::string_view challenge, std::string_view claim,
                  std::string_view attach_token);
bool ProofIsRight(std::string_view challenge, std::string_view claim, std::string_view proof,
                  std::string_view attach_token);

}  // namespace outboard::worker
