// A worker's certificate, without which a fleet port with TLS lets nobody join: made with the fleet
// secret when the worker starts, kept in memory only, and replaced when two thirds of its life are
// over. The key never leaves this process, but for the file that the options name.
//
//   none --Channels: Enrol--> good --two thirds are over--> due --Channels: Enrol--> good
//                                          due --Enrol fails--> due, and the old one is used on
//   good --Refused: the gateway has another CA, say--> refused --Channels: Enrol--> good
//                                          refused --Enrol fails--> none
//
// Threads: IsDue by any; the others by one.
#pragma once

#include <grpcpp/channel.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/fleet.grpc.pb.h"
#include "wire/tls/certificate.h"
#include "worker/tpm/node_tpm.h"

namespace outboard::worker {

struct FleetChannels {
  std::shared_ptr<grpc::Channel> control;
  std::vector<std::shared_ptr<grpc::Channel>> bulk;  // for blobs
};

struct EnrolmentOptions {
  std::string name;          // for people
  // Of a machine that booted over the network: it enrols as a node, without a fleet secret, and the
  // token, if any, is its claim. Keys and certificates are always kept in `file`, which is in its
  // memory.
  std::optional<proto::NodeFacts> node = std::nullopt;
  // Of such a machine: where its TPM is (worker/tpm/node_tpm.h), which it then proves; one that
  // does not answer is left out.
  std::optional<std::string> tpm = std::nullopt;
  std::string fleet_secret;  // as in SupervisorOptions
  std::string token;         // for a gateway that asks for one; spent by the first certificate
  // Where the key and certificate of a token are kept for the next start of this worker, which has
  // no token then. Empty, or where there was never a token: in memory only. Beside it, as FILE.new,
  // the key of a request that has no answer yet: whoever shows it again gets the certificate again.
  std::string file;
  // Makes connections that present the certificate; without one they are good for Enrol alone.
  std::function<FleetChannels(std::shared_ptr<const tls::KeyAndChain>)> connect;
};

class Enrolment {
 public:
  explicit Enrolment(EnrolmentOptions options)
      : options_(std::move(options)),
        keeps_(!options_.token.empty() || options_.node.has_value()) {}

  // Connections with a certificate that is good; new ones where it was replaced. Blocks while it
  // enrols, 10 s at most; with a TPM, twice that and as long as the TPM takes, which CanRenew may
  // have waited for before.
  // Errors: UNAVAILABLE      nobody answers, and no certificate is good
  //         UNAUTHENTICATED  a wrong fleet secret
  //         PERMISSION_DENIED  no token that is good, or another worker has the name
  //         of a node those of gateway/nodes/node_words.h
  absl::StatusOr<FleetChannels> Channels();
  // The gateway has refused the certificate: Channels enrols anew, where it was not that which
  // brought it. False: it was, or there is none, and to try again is of no use.
  bool Refused();
  // It has let this worker in.
  void Accepted() { is_refused_ = false; }
  bool is_node() const { return options_.node.has_value(); }
  // Of a node: what the gateway has for its kernel, as it said when it last enrolled; nothing where
  // it has not asked, for it had a certificate already.
  const std::optional<proto::NodeDriver>& driver() const { return driver_; }
  bool has_asked() const { return has_asked_; }
  // Where IsDue: whether Channels would renew without waiting for the TPM to make its keys, which
  // takes seconds. Begins that where it is needed; to be asked again until true. Where the TPM does
  // not answer, it is due later. Not beside the calls of another thread.
  bool CanRenew();
  // True when Channels would enrol.
  bool IsDue() const { return absl::Now() >= absl::FromUnixMillis(due_unix_ms_); }

 private:
  absl::Status Enrol();
  // `has_certificate`: the connection presents one that is good.
  absl::StatusOr<std::string> Ask(proto::Fleet::Stub& fleet, const std::string& request);
  absl::Status AskAsNode(proto::Fleet::Stub& fleet, const std::string& request,
                         proto::EnrolReply& reply);
  absl::Status ChooseKey();
  void KeepSecret(const std::string& path, const std::string& pem) const;
  std::string PathOfNewKey() const { return options_.file + ".new"; }
  void ReadKept();
  void Use(tls::KeyAndChain certificate);
  // Requires a certificate. A renewal is due in `pause`, sooner where that ends before.
  void MoveDue(absl::Duration pause);

  const EnrolmentOptions options_;
  std::shared_ptr<const tls::KeyAndChain> certificate_;
  std::optional<tls::PrivateKey> key_;  // of a request that has no answer yet
  bool is_refused_ = false;             // since it was last accepted
  bool has_looked_ = false;             // at the file
  bool keeps_;                          // writes the file
  std::optional<proto::NodeDriver> driver_;
  bool has_asked_ = false;
  FleetChannels channels_;
  std::future<std::unique_ptr<NodeTpm>> opening_tpm_;  // for the next renewal
  std::unique_ptr<NodeTpm> tpm_;                       // what came of it
  std::atomic<int64_t> due_unix_ms_{0};
};

// Of a node's, which has no fleet secret: the gateway's local socket asks for it.
inline bool IsNode(const Enrolment* enrolment) {
  return enrolment != nullptr && enrolment->is_node();
}

}  // namespace outboard::worker
