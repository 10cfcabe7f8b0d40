// Lets nodes in: a machine that booted over the network shows a key and its facts, and is given a
// certificate for its serial number, if
//
//   certificate  it presents one of that serial number which is good: it renews
//   key          it has this key's already, and the answer was lost
//   claim        it shows one that was made for the serial number; spent by it
//   expected     somebody said that a node of this serial number comes
//   approved     somebody let in this key, which waited
//   tpm          it proves an endorsement key that is expected, or is this node's since it was
//                first let in
//
// Else it waits, and is listed; nothing is signed before one of these holds. But for the first two
// a node is only let in where no other of its serial number is here, or it proves that it is this
// node by its TPM; what that one was issued is then revoked.
//
// A node that shows a TPM proves it first, in a second call (tpm_challenges.h), however it is let
// in: from then on that TPM is the node (node_tpms.h), and nobody without it is let in under its
// serial number by anything but a certificate or key that was issued before.
//
// Threads: any; reads and writes the disk.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gateway/base/allowance.h"
#include "gateway/doors/address_key.h"
#include "gateway/nodes/node_registry.h"
#include "gateway/nodes/node_tpms.h"
#include "gateway/nodes/tpm_challenges.h"
#include "proto/fleet.pb.h"
#include "wire/tls/certificate.h"

namespace grpc {
class AuthContext;
}  // namespace grpc

namespace outboard::gateway {

class WorkerAdmission;

class NodeEnrolment {
 public:
  // A node that has just been let in has so long to join before another may be it.
  static constexpr int64_t kJoinsWithinMs = 20'000;

  NodeEnrolment(std::unique_ptr<NodeRegistry> registry, std::unique_ptr<NodeTpms> tpms,
                WorkerAdmission* admission, int64_t joins_within_ms = kJoinsWithinMs)
      : registry_(std::move(registry)),
        tpms_(std::move(tpms)),
        admission_(admission),
        joins_within_ms_(joins_within_ms) {}

  struct Now {
    WallTime wall;
    MonoTime mono;  // of how often an address asks
  };
  struct Answer {
    std::vector<tls::Certificate> chain;            // the node's, then the CA's; or, empty,
    std::optional<proto::NodeChallenge> challenge;  // what it is to answer first
  };
  // `address`: where the caller is, for people.
  // Errors: INVALID_ARGUMENT    the request, or facts
  //         PERMISSION_DENIED, UNAUTHENTICATED, UNAVAILABLE, RESOURCE_EXHAUSTED  each with a word
  //                             (node_words.h); the log has the facts
  //         those of the registry and of gateway/tls/authority_files.h
  absl::StatusOr<Answer> Enrol(const grpc::AuthContext& caller,
                               const proto::EnrolNodeRequest& request, const std::string& address,
                               Now now);

 private:
  enum class Proof { kCertificate, kKey, kTpm, kClaim, kExpected, kApproved };
  static const char* ToString(Proof proof);
  absl::StatusOr<Answer> TryEnrol(const grpc::AuthContext& caller,
                                  const proto::EnrolNodeRequest& request, NodeRow& node, Now now);
  absl::Status MayAsk(const std::string& address, MonoTime now);
  // By what it was issued before; nullopt: by nothing.
  absl::StatusOr<std::optional<Proof>> ProveAgain(const grpc::AuthContext& caller,
                                                  const NodeRow& node, const NodeRow* before);
  // By the TPM that it has proved, node.facts.endorsement_key; nullopt: it has none, or one that
  // nobody expects.
  absl::StatusOr<std::optional<Proof>> ProveByTpm(const NodeRow& node, const NodeRow* before,
                                                  bool& is_this_node);
  absl::StatusOr<Proof> Prove(const proto::EnrolNodeRequest& request, const NodeRow& node,
                              const NodeRow* before, WallTime now);

  std::mutex asks_mutex_;
  std::map<AddressKey, Allowance> asks_;
  std::mutex mutex_;  // of two that ask for one serial number the second finds the first
  const std::unique_ptr<NodeRegistry> registry_;
  const std::unique_ptr<NodeTpms> tpms_;
  TpmChallenges challenges_;
  WorkerAdmission* const admission_;
  const int64_t joins_within_ms_;
};

}  // namespace outboard::gateway
