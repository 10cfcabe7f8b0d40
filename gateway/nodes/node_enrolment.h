// Lets nodes in: a machine that booted over the network shows a key and its facts, and is given a
// certificate for its serial number, if
//
//   certificate  it presents one of that serial number which is good: it renews
//   key          it has this key's already, and the answer was lost
//   claim        it shows one that was made for the serial number; spent by it
//   expected     somebody said that a node of this serial number comes
//   approved     somebody let in this key, which waited
//
// Else it waits, and is listed; nothing is signed before one of these holds. But for the first two
// a node is only let in where no other of its serial number is here; what that one was issued is
// then revoked.
//
// Threads: any; reads and writes the disk.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gateway/base/allowance.h"
#include "gateway/doors/address_key.h"
#include "gateway/nodes/node_registry.h"
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

  NodeEnrolment(std::unique_ptr<NodeRegistry> registry, WorkerAdmission* admission,
                int64_t joins_within_ms = kJoinsWithinMs)
      : registry_(std::move(registry)), admission_(admission), joins_within_ms_(joins_within_ms) {}

  struct Now {
    WallTime wall;
    MonoTime mono;  // of how often an address asks
  };
  // `address`: where the caller is, for people.
  // Errors: INVALID_ARGUMENT    the request, or facts
  //         PERMISSION_DENIED, UNAUTHENTICATED, UNAVAILABLE, RESOURCE_EXHAUSTED  each with a word
  //                             (node_words.h); the log has the facts
  //         those of the registry and of gateway/tls/authority_files.h
  absl::StatusOr<std::vector<tls::Certificate>> Enrol(const grpc::AuthContext& caller,
                                                      const proto::EnrolNodeRequest& request,
                                                      const std::string& address, Now now);

 private:
  enum class Proof { kCertificate, kKey, kClaim, kExpected, kApproved };
  static const char* ToString(Proof proof);
  absl::StatusOr<std::vector<tls::Certificate>> TryEnrol(const grpc::AuthContext& caller,
                                                         const proto::EnrolNodeRequest& request,
                                                         NodeRow& node, WallTime now);
  absl::Status MayAsk(const std::string& address, MonoTime now);
  absl::StatusOr<Proof> Prove(const grpc::AuthContext& caller,
                              const proto::EnrolNodeRequest& request, const NodeRow& node,
                              const NodeRow* before, WallTime now);

  std::mutex asks_mutex_;
  std::map<AddressKey, Allowance> asks_;
  std::mutex mutex_;  // of two that ask for one serial number the second finds the first
  const std::unique_ptr<NodeRegistry> registry_;
  WorkerAdmission* const admission_;
  const int64_t joins_within_ms_;
};

}  // namespace outboard::gateway
