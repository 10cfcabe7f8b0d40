// Challenges to nodes that show a TPM, and their answers: a credential for its endorsement and its
// attestation key, which it opens with the TPM alone (wire/tpm/credential.h). In memory: after a
// restart of the gateway a node asks for another.
//
//   none --Check without an answer--> open --Check with an answer, right or wrong--> gone
//                                     open --kChallengeLifeNs, or others need room--> gone
//
// Invariants: a challenge is good for one answer, by the key of the request and for the serial
// number that it was made for; its secret leaves this process encrypted alone.
// Threads: one at a time.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "gateway/base/clock.h"
#include "gateway/doors/address_key.h"
#include "proto/fleet.pb.h"
#include "wire/tpm/tpm_keys.h"

namespace outboard::gateway {

inline constexpr int64_t kChallengeLifeNs = 60'000'000'000;
// That are open; of one address, or one /64 of IPv6, behind which there may be a shelf. Anybody can
// ask, so nobody is refused for others: where there are so many, the oldest of this address, or of
// the address that has most, is forgotten. A node answers within seconds.
inline constexpr size_t kChallengesMax = 4096, kChallengesPerAddressMax = 64;

class TpmChallenges {
 public:
  struct Outcome {
    std::string proved;  // the endorsement key, "sha256:..."; "": there is a challenge
    std::optional<proto::NodeChallenge> challenge;  // the node must answer it before it is let in
    // Of the key's certificate, whose chain is not checked here; "": it sent none.
    // INVALID_ARGUMENT: it cannot be read, or is of another key.
    absl::StatusOr<std::string> issuer = std::string();
  };
  // Of a request that shows a TPM.
  // Errors: INVALID_ARGUMENT    tpm_refused
  //         PERMISSION_DENIED   tpm_wrong_answer
  //         UNAVAILABLE         tpm_challenge_unknown: the node is to ask for another
  absl::StatusOr<Outcome> Check(const proto::EnrolNodeRequest& request, const std::string& address,
                                MonoTime now);

 private:
  struct Open {
    std::string id, endorsement_key, secret;
    std::string digest;  // of what it was made for
    AddressKey address;
    MonoTime until;
  };
  // Forgets one challenge where there are too many to add another of this address.
  void MakeRoom(const AddressKey& from);
  absl::StatusOr<proto::NodeChallenge> Make(Open open, const tpm::EndorsementKey& key,
                                            std::string_view name);

  std::vector<Open> open_;  // the oldest first
};

}  // namespace outboard::gateway
