// A worker's certificate, without which a fleet port with TLS lets nobody join: made with the fleet
// secret when the worker starts, kept in memory only, and replaced when two thirds of its life are
// over. The key never leaves this process, but for the file that the options name.
//
//   none --Channels: Enrol--> good --two thirds are over--> due --Channels: Enrol--> good
//                                          due --Enrol fails--> due, and the old one is used on
//
// Threads: Channels by one; IsDue by any.
#pragma once

#include <grpcpp/channel.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "wire/tls/certificate.h"

namespace outboard::worker {

struct FleetChannels {
  std::shared_ptr<grpc::Channel> control;
  std::vector<std::shared_ptr<grpc::Channel>> bulk;  // for blobs
};

struct EnrolmentOptions {
  std::string name;          // for people
  std::string fleet_secret;  // as in SupervisorOptions
  std::string token;         // for a gateway that asks for one; spent by the first certificate
  // Where the key and certificate of a token are kept for the next start of this worker, which has
  // no token then. Empty, or where there was never a token: in memory only.
  std::string file;
  // Makes connections that present the certificate; without one they are good for Enrol alone.
  std::function<FleetChannels(std::shared_ptr<const tls::KeyAndChain>)> connect;
};

class Enrolment {
 public:
  explicit Enrolment(EnrolmentOptions options)
      : options_(std::move(options)), keeps_(!options_.token.empty()) {}

  // Connections with a certificate that is good; new ones where it was replaced. Blocks while it
  // enrols, 10 s at most.
  // Errors: UNAVAILABLE      nobody answers, and no certificate is good
  //         UNAUTHENTICATED  a wrong fleet secret
  //         PERMISSION_DENIED  no token that is good, or another worker has the name
  absl::StatusOr<FleetChannels> Channels();
  // True when Channels would enrol.
  bool IsDue() const { return absl::Now() >= absl::FromUnixMillis(due_unix_ms_); }

 private:
  absl::Status Enrol();
  void ReadKept();
  void Use(tls::KeyAndChain certificate);

  const EnrolmentOptions options_;
  std::shared_ptr<const tls::KeyAndChain> certificate_;
  bool has_looked_ = false;  // at the file
  bool keeps_;               // writes the file
  FleetChannels channels_;
  std::atomic<int64_t> due_unix_ms_{0};
};

}  // namespace outboard::worker
