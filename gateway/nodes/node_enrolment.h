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
// serial number, nor is its certificate renewed. A TPM that is not known yet must have a maker that
// is trusted, where the operator says which are.
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
#include "wire/tpm/maker_roots.h"

namespace grpc {
class AuthContext;
}  // namespace grpc

namespace outboard::gateway {

class WorkerAdmission;

// The makers whose TPMs are let in, of a PEM file; "": of any, and a line says so.
// Errors: those of tls::ReadFile and MakerRoots::Parse
absl::StatusOr<std::optional<tpm::MakerRoots>> ReadTpmMakers(const std::string& file);

class NodeEnrolment {
 public:
  // A node that has just been let in has so long to join before another may be it.
  static constexpr int64_t kJoinsWithinMs = 20'000;

  // `makers`: whose TPMs are let in; nullopt: anybody's.
  NodeEnrolment(std::unique_ptr<NodeRegistry> registry, std::unique_ptr<NodeTpms> tpms,
                WorkerAdmission* admission, int64_t joins_within_ms = kJoinsWithinMs,
                std::optional<tpm::MakerRoots> makers = std::nullopt)
      : registry_(std::move(registry)),
        tpms_(std::move(tpms)),
        admission_(admission),
        joins_within_ms_(joins_within_ms),
        makers_(std::move(makers)) {}

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
  // How a node is let in, and what that permits.
  struct Proof {
    const char* word;     // in the log
    bool is_this_node;    // it does not wait until who has its serial number is gone
    bool renews;          // certificates from before stay good until they expire: calls have them
    bool binds_tpm;       // the TPM that it has proved, if any, is this node from now on
    bool spends_claim;
  };
  static const Proof kCertificate, kKey, kTpm, kExpectedTpm, kClaim, kExpected, kApproved;
  absl::StatusOr<Answer> TryEnrol(const grpc::AuthContext& caller,
                                  const proto::EnrolNodeRequest& request, NodeRow& node, Now now);
  absl::Status MayAsk(const std::string& address, MonoTime now);
  // Each of these: nullopt, or nothing, where the node is not let in by that.
  // By what it was issued before.
  absl::StatusOr<std::optional<Proof>> ProveAgain(const grpc::AuthContext& caller,
                                                  const NodeRow& node, const NodeRow* before);
  // By the TPM that it has proved, node.facts.endorsement_key: it is expected, whoever it says that
  // it is.
  absl::StatusOr<std::optional<Proof>> ProveByTpm(const NodeRow& node, const NodeRow* before);
  // Of a TPM that is neither expected nor a node's.
  absl::Status CheckMaker(const proto::EnrolNodeRequest& request,
                          const TpmChallenges::Outcome& tpm);
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
  const std::optional<tpm::MakerRoots> makers_;
};

}  // namespace outboard::gateway
