#include "worker/node/enrolment.h"

#include <grpcpp/client_context.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "proto/fleet.grpc.pb.h"
#include "telemetry/log.h"
#include "wire/status.h"
#include "wire/tls/authority.h"
#include "wire/tls/private_file.h"

namespace outboard::worker {
namespace {

constexpr std::chrono::seconds kEnrolsWithin{10};
// After an attempt that failed while the certificate is still good: a minute, less where it is
// about to expire.
constexpr absl::Duration kAgainAfter = absl::Minutes(1);

}  // namespace

absl::StatusOr<FleetChannels> Enrolment::Channels() {
  if (!std::exchange(has_looked_, true)) ReadKept();
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
  request.set_token(options_.token);
  // What is still good proves the name.
  const bool is_good =
      certificate_ != nullptr && absl::Now() < certificate_->chain.front().not_after();
  const FleetChannels without = options_.connect(is_good ? certificate_ : nullptr);
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
  Use({std::move(key), std::move(chain)});
  if (options_.file.empty() || !keeps_) return absl::OkStatus();
  if (const absl::Status kept = tls::WriteFile(options_.file, certificate_->ToPem(),
                                               /*is_secret=*/true, tls::Replace::kYes);
      !kept.ok())
    telemetry::LogWarning("certificate_not_kept", {{"message", kept.message()}});
  return absl::OkStatus();
}

void Enrolment::Use(tls::KeyAndChain certificate) {
  const tls::Certificate& own = certificate.chain.front();
  due_unix_ms_ = absl::ToUnixMillis(
      tls::RenewAt(std::max(own.not_before(), absl::Now() - absl::Seconds(1)), own.not_after()));
  certificate_ = std::make_shared<const tls::KeyAndChain>(std::move(certificate));
  channels_ = options_.connect(certificate_);
}

// One that has expired, or is damaged, is as none.
void Enrolment::ReadKept() {
  if (options_.file.empty()) return;
  const auto pem = tls::ReadFile(options_.file, /*is_secret=*/true);
  if (absl::IsNotFound(pem.status())) return;
  auto kept = pem.ok() ? tls::KeyAndChain::Parse("the worker's certificate", *pem, *pem)
                       : absl::StatusOr<tls::KeyAndChain>(pem.status());
  keeps_ |= kept.ok();
  if (kept.ok() && absl::Now() < kept->chain.front().not_after()) {
    Use(*std::move(kept));
    // It may have been revoked since, and the token be for the next: the gateway takes either.
    if (!options_.token.empty()) due_unix_ms_ = 0;
    return;
  }
  const absl::string_view why = kept.status().message();
  if (!kept.ok()) telemetry::LogWarning("certificate_not_kept", {{"message", why}});
}

}  // namespace outboard::worker
