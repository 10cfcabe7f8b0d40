#include "worker/node/enrolment.h"

#include <grpcpp/client_context.h>

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "proto/fleet.grpc.pb.h"
#include "telemetry/log.h"
#include "wire/status.h"
#include "wire/tls/authority.h"

namespace outboard::worker {
namespace {

constexpr std::chrono::seconds kEnrolsWithin{10};
// After an attempt that failed while the certificate is still good: a minute, less where it is
// about to expire.
constexpr absl::Duration kAgainAfter = absl::Minutes(1);

}  // namespace

absl::StatusOr<FleetChannels> Enrolment::Channels() {
  if (!IsDue()) return channels_;
  const absl::Status status = Enrol();
  if (status.ok()) return channels_;
  if (certificate_ == nullptr) return status;
  const absl::Time now = absl::Now(), end = certificate_->chain.front().not_after();
  if (now >= end) return status;
  telemetry::LogWarning("certificate_not_renewed", {{"message", status.message()}});
  due_unix_ms_ = absl::ToUnixMillis(now + std::min(kAgainAfter, (end - now) / 4));
  return channels_;
}

absl::Status Enrolment::Enrol() {
  OB_ASSIGN_OR_RETURN(tls::PrivateKey key, tls::PrivateKey::Generate());
  proto::EnrolRequest request;
  OB_ASSIGN_OR_RETURN(*request.mutable_certificate_request(), tls::MakeRequest(key));
  request.set_name(options_.name);
  const FleetChannels without = options_.connect(nullptr);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kEnrolsWithin);
  context.set_wait_for_ready(true);
  context.AddMetadata("authorization", "Bearer " + options_.fleet_secret);
  proto::EnrolReply reply;
  const grpc::Status status =
      proto::Fleet::NewStub(without.control)->Enrol(&context, request, &reply);
  if (!status.ok()) return wire::FromGrpc(status);
  OB_ASSIGN_OR_RETURN(auto chain, tls::Certificate::ParseAll("the worker's certificate",
                                                             reply.certificate_chain()));
  if (!key.Fits(chain.front()))
    return absl::UnavailableError("the gateway has issued a certificate for another key");
  const tls::Certificate own = chain.front();
  due_unix_ms_ = absl::ToUnixMillis(
      tls::RenewAt(std::max(own.not_before(), absl::Now() - absl::Seconds(1)), own.not_after()));
  certificate_ =
      std::make_shared<const tls::KeyAndChain>(tls::KeyAndChain{std::move(key), std::move(chain)});
  channels_ = options_.connect(certificate_);
  return absl::OkStatus();
}

}  // namespace outboard::worker
