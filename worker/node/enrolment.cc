#include "worker/node/enrolment.h"

#include <grpcpp/client_context.h>
#include <unistd.h>

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
  if (is_refused_) {
    certificate_.reset();
    return status;
  }
  const absl::Time now = absl::Now(), end = certificate_->chain.front().not_after();
  if (now >= end) return status;
  telemetry::LogWarning("certificate_not_renewed", {{"message", status.message()}});
  due_unix_ms_ = absl::ToUnixMillis(now + std::min(kAgainAfter, (end - now) / 4));
  return channels_;
}

bool Enrolment::Refused() {
  if (certificate_ == nullptr || std::exchange(is_refused_, true)) return false;
  due_unix_ms_ = 0;
  return true;
}

// Where names are proved the gateway knows the worker by this key, should its answer be lost.
absl::Status Enrolment::ChooseKey() {
  if (key_.has_value()) return absl::OkStatus();
  const bool has_file = !options_.file.empty() && keeps_;
  if (has_file) {
    const auto pem = tls::ReadFile(PathOfNewKey(), /*is_secret=*/true);
    if (pem.ok())
      if (auto kept = tls::PrivateKey::Parse("the worker's key", *pem); kept.ok())
        key_ = *std::move(kept);
    if (key_.has_value()) return absl::OkStatus();
  }
  OB_ASSIGN_OR_RETURN(key_, tls::PrivateKey::Generate());
  if (has_file) KeepSecret(PathOfNewKey(), key_->ToPem());
  return absl::OkStatus();
}

void Enrolment::KeepSecret(const std::string& path, const std::string& pem) const {
  if (const absl::Status kept = tls::WriteFile(path, pem, /*is_secret=*/true, tls::Replace::kYes);
      !kept.ok())
    telemetry::LogWarning("certificate_not_kept", {{"message", kept.message()}});
}

absl::Status Enrolment::Enrol() {
  OB_RETURN_IF_ERROR(ChooseKey());
  OB_ASSIGN_OR_RETURN(const std::string request, tls::MakeRequest(*key_));
  // What is still good proves the name.
  const bool is_good =
      certificate_ != nullptr && absl::Now() < certificate_->chain.front().not_after();
  const FleetChannels without = options_.connect(is_good ? certificate_ : nullptr);
  const auto pem = Ask(*proto::Fleet::NewStub(without.control), request);
  if (!pem.ok()) {
    // A node's certificate that was revoked proves nothing any more, nor does its key: it makes
    // another when it is started again, and waits to be let in.
    if (options_.node.has_value() && absl::IsUnauthenticated(pem.status()))
      for (const std::string& path : {options_.file, PathOfNewKey()}) unlink(path.c_str());
    return pem.status();
  }
  OB_ASSIGN_OR_RETURN(auto chain, tls::Certificate::ParseAll("the worker's certificate", *pem));
  if (!key_->Fits(chain.front()))
    return absl::UnavailableError("the gateway has issued a certificate for another key");
  Use({*std::exchange(key_, std::nullopt), std::move(chain)});
  if (options_.file.empty() || !keeps_) return absl::OkStatus();
  KeepSecret(options_.file, certificate_->ToPem());
  unlink(PathOfNewKey().c_str());
  return absl::OkStatus();
}

absl::StatusOr<std::string> Enrolment::Ask(proto::Fleet::Stub& fleet,
                                           const std::string& request) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kEnrolsWithin);
  context.set_wait_for_ready(true);
  proto::EnrolReply reply;
  grpc::Status status;
  if (options_.node.has_value()) {
    proto::EnrolNodeRequest node;
    node.set_certificate_request(request);
    *node.mutable_facts() = *options_.node;
    node.set_claim(options_.token);
    status = fleet.EnrolNode(&context, node, &reply);
  } else {
    proto::EnrolRequest worker;
    worker.set_certificate_request(request);
    worker.set_name(options_.name);
    worker.set_token(options_.token);
    context.AddMetadata("authorization", "Bearer " + options_.fleet_secret);
    status = fleet.Enrol(&context, worker, &reply);
  }
  if (!status.ok()) return wire::FromGrpc(status);
  has_asked_ = true;
  driver_ = reply.has_driver() ? std::optional(reply.driver()) : std::nullopt;
  return std::move(*reply.mutable_certificate_chain());
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
    if (!options_.token.empty() && !options_.node.has_value()) due_unix_ms_ = 0;
    return;
  }
  const absl::string_view why = kept.status().message();
  if (!kept.ok()) telemetry::LogWarning("certificate_not_kept", {{"message", why}});
}

}  // namespace outboard::worker
