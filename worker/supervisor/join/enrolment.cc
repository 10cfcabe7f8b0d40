#include "worker/supervisor/join/enrolment.h"

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
#include "wire/tpm/credential.h"
#include "worker/tpm/node_tpm.h"

namespace outboard::worker {
namespace {

constexpr std::chrono::seconds kEnrolsWithin{10};
// After an attempt that failed while the certificate is still good: a minute, less where it is
// about to expire.
// The pause after a renewal that failed: where nobody answered, and where it was refused, which a
// second try will hardly change. Each try leaves the gateway and joins again, so it is not shorter
// than the last of these.
constexpr absl::Duration kAgainAfter = absl::Minutes(1), kRefusedAgainAfter = absl::Hours(1),
                         kAgainAtLeastAfter = absl::Seconds(5);

void Prepare(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + kEnrolsWithin);
  context.set_wait_for_ready(true);
}

void SayWithoutTpm(const absl::Status& why) {
  telemetry::LogWarning("node_tpm", {{"message", why.message()},
                                     {"effect", "this machine enrols without its TPM"}});
}

// Null where it does not answer.
std::unique_ptr<NodeTpm> OpenTpm(const std::string& where) {
  auto tpm = NodeTpm::Open(where);
  const auto key = tpm.ok() ? tpm::EndorsementKey::Parse((*tpm)->endorsement_key())
                            : absl::StatusOr<tpm::EndorsementKey>(tpm.status());
  if (!key.ok()) {
    SayWithoutTpm(key.status());
    return nullptr;
  }
  // Where somebody reads it off who expects this machine by it.
  telemetry::LogInfo("node_tpm", {{"endorsement_key", key->fingerprint().ToString()}});
  return *std::move(tpm);
}

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
  MoveDue(absl::IsUnavailable(status) ? kAgainAfter : kRefusedAgainAfter);
  return channels_;
}

void Enrolment::MoveDue(absl::Duration pause) {
  const absl::Time now = absl::Now(), end = certificate_->chain.front().not_after();
  due_unix_ms_ = absl::ToUnixMillis(
      now + std::max(kAgainAtLeastAfter, std::min(pause, (end - now) / 4)));
}

bool Enrolment::CanRenew() {
  if (!options_.node.has_value() || !options_.tpm.has_value()) return true;
  if (tpm_ != nullptr) return true;
  if (!opening_tpm_.valid())
    opening_tpm_ =
        std::async(std::launch::async, [where = *options_.tpm] { return OpenTpm(where); });
  if (opening_tpm_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return false;
  tpm_ = opening_tpm_.get();
  // The gateway would refuse what no TPM proves: sessions stay while the certificate is good.
  if (tpm_ == nullptr && certificate_ != nullptr) MoveDue(kRefusedAgainAfter);
  return tpm_ != nullptr || certificate_ == nullptr;
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
  // What is still good proves the name, of a node with a TPM not alone.
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
  proto::EnrolReply reply;
  if (options_.node.has_value()) {
    OB_RETURN_IF_ERROR(AskAsNode(fleet, request, reply));
  } else {
    grpc::ClientContext context;
    Prepare(context);
    proto::EnrolRequest worker;
    worker.set_certificate_request(request);
    worker.set_name(options_.name);
    worker.set_token(options_.token);
    context.AddMetadata("authorization", "Bearer " + options_.fleet_secret);
    OB_RETURN_IF_ERROR(wire::FromGrpc(fleet.Enrol(&context, worker, &reply)));
  }
  has_asked_ = true;
  driver_ = reply.has_driver() ? std::optional(reply.driver()) : std::nullopt;
  return std::move(*reply.mutable_certificate_chain());
}

absl::Status Enrolment::AskAsNode(proto::Fleet::Stub& fleet, const std::string& request,
                                  proto::EnrolReply& reply) {
  proto::EnrolNodeRequest node;
  node.set_certificate_request(request);
  *node.mutable_facts() = *options_.node;
  node.set_claim(options_.token);
  const auto ask = [&]() -> absl::Status {
    grpc::ClientContext context;
    Prepare(context);
    return wire::FromGrpc(fleet.EnrolNode(&context, node, &reply));
  };
  std::unique_ptr<NodeTpm> tpm = std::move(tpm_);
  if (tpm == nullptr && opening_tpm_.valid()) tpm = opening_tpm_.get();
  if (tpm == nullptr && options_.tpm.has_value()) tpm = OpenTpm(*options_.tpm);
  if (tpm == nullptr) return ask();
  node.mutable_tpm()->set_endorsement_key(tpm->endorsement_key());
  node.mutable_tpm()->set_attestation_key(tpm->attestation_key());
  node.mutable_tpm()->set_endorsement_certificate(tpm->endorsement_certificate());
  OB_RETURN_IF_ERROR(ask());
  if (!reply.has_challenge()) return absl::OkStatus();  // it was let in without one
  const proto::NodeChallenge challenge = reply.challenge();
  const auto secret = tpm->Activate(challenge.id_object(), challenge.seed());
  if (secret.ok()) {
    node.mutable_tpm()->set_challenge(challenge.id());
    node.mutable_tpm()->set_answer(tpm::AnswerOf(*secret, request, node.facts().serial()));
  } else {
    SayWithoutTpm(secret.status());
    node.clear_tpm();
  }
  reply.Clear();
  return ask();
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
