// A node proves itself by its TPM (docs/decisions/154-proof-by-tpm.md): what lets it in, and what
// does not. The TPMs are swtpm's.
#include <gtest/gtest.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/strings/escaping.h"
#include "gateway/nodes/node_tpms.h"
#include "gateway/nodes/tpm_challenges.h"
#include "gateway/server/gateway.h"
#include "storage/sqlite.h"
#include "tests/nodes/node_world.h"
#include "tests/nodes/software_tpm.h"
#include "tests/support/paths.h"
#include "wire/tpm/credential.h"
#include "wire/tpm/maker_roots.h"
#include "wire/tpm/tpm_keys.h"
#include "worker/tpm/node_tpm.h"

namespace outboard::test {
namespace {

using enum absl::StatusCode;

class NodeTpmTest : public NodeTest {
 protected:
  // What a node sends, with a new key each time, as after a start.
  proto::EnrolNodeRequest Request(const std::string& serial, worker::NodeTpm* tpm,
                                  const std::string& claim = "") {
    proto::EnrolNodeRequest request;
    request.set_certificate_request(
        tls::MakeRequest(tls::PrivateKey::Generate().value()).value());
    request.mutable_facts()->set_serial(serial);
    request.set_claim(claim);
    if (tpm == nullptr) return request;
    request.mutable_tpm()->set_endorsement_key(tpm->endorsement_key());
    request.mutable_tpm()->set_attestation_key(tpm->attestation_key());
    return request;
  }
  absl::Status Send(const proto::EnrolNodeRequest& request, proto::EnrolReply* reply,
                    const Identity& with = nullptr) {
    grpc::ClientContext context;
    return wire::FromGrpc(Fleet(with)->EnrolNode(&context, request, reply));
  }
  // Asks for a challenge, and writes the answer of `by` into the request.
  absl::Status Answer(proto::EnrolNodeRequest& request, worker::NodeTpm& by,
                      const Identity& with = nullptr) {
    proto::EnrolReply reply;
    if (const absl::Status status = Send(request, &reply, with); !status.ok()) return status;
    EXPECT_TRUE(reply.has_challenge());
    EXPECT_EQ(reply.certificate_chain(), "");
    request.mutable_tpm()->set_challenge(reply.challenge().id());
    const auto secret = by.Activate(reply.challenge().id_object(), reply.challenge().seed());
    if (!secret.ok()) return secret.status();
    request.mutable_tpm()->set_answer(
        tpm::AnswerOf(*secret, request.certificate_request(), request.facts().serial()));
    return absl::OkStatus();
  }
  absl::Status EnrolBy(const std::string& serial, worker::NodeTpm& tpm,
                       const std::string& claim = "") {
    proto::EnrolNodeRequest request = Request(serial, &tpm, claim);
    if (const absl::Status status = Answer(request, tpm); !status.ok()) return status;
    proto::EnrolReply reply;
    const absl::Status status = Send(request, &reply);
    EXPECT_EQ(status.ok(), !reply.certificate_chain().empty());
    return status;
  }
  static std::string KeyOf(worker::NodeTpm& tpm) {
    return tpm::EndorsementKey::Parse(tpm.endorsement_key())->fingerprint().ToString();
  }
  static void Refused(const absl::Status& status, absl::StatusCode code, const char* word) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_EQ(Word(status), word) << status;
  }
};

TEST_F(NodeTpmTest, WhoProvesTheExpectedKey_IsThatNode_AtEachStart_AndNobodyElseIs) {
  OB_NEEDS_SWTPM();
  StartGateway();
  const SoftwareTpm chip, stranger;
  const auto own = worker::NodeTpm::Open(chip.where()).value();
  const auto other = worker::NodeTpm::Open(stranger.where(), tpm::KeyKind::kP256).value();
  EXPECT_NE(Node("expect").code, 0) << "which machine";
  EXPECT_NE(Node("expect --ek sha256:12").code, 0);
  ASSERT_EQ(Node("expect --ek " + KeyOf(*own)).code, 0);
  EXPECT_NE(Node("ls").out.find(KeyOf(*own)), std::string::npos) << Node("ls").out;
  // Not expected: it waits, and what it proved is listed.
  Refused(EnrolBy("s-2", *other), kUnavailable, gateway::kWaitingForApproval);
  EXPECT_NE(Node("show s-2").out.find(KeyOf(*other)), std::string::npos);

  ASSERT_TRUE(EnrolBy("s-1", *own).ok());
  EXPECT_NE(cluster_.gateway().err().find("proof=tpm"), std::string::npos);
  EXPECT_NE(Node("show s-1 --json").out.find("\"tpm\": \"" + KeyOf(*own)), std::string::npos);
  // Started again, at once: it is the same, and the key from before is revoked.
  ASSERT_TRUE(EnrolBy("s-1", *own).ok());
  EXPECT_NE(cluster_.gateway().err().find("revoked=1"), std::string::npos);

  // A stranger's TPM, and none, with this node's serial number; also with a claim for it.
  const std::string claim = Claim("s-1");
  Refused(EnrolBy("s-1", *other), kPermissionDenied, gateway::kTpmOther);
  Refused(EnrolBy("s-1", *other, claim), kPermissionDenied, gateway::kTpmOther);
  Refused(Enrol("s-1", claim), kPermissionDenied, gateway::kTpmMissing);
  EXPECT_NE(Node("expect --serial s-1 --ek " + KeyOf(*other)).code, 0) << "it has another";
  // A TPM that is expected without a serial number takes no other node's.
  ASSERT_TRUE(Enrol("s-4", Claim("s-4")).ok());
  ASSERT_EQ(Node("expect --ek " + KeyOf(*other)).code, 0);
  Refused(EnrolBy("s-4", *other), kPermissionDenied, gateway::kSerialTaken);
  ASSERT_EQ(Node("rm " + KeyOf(*other)).code, 0);
  // One TPM is one node.
  Refused(EnrolBy("s-3", *own), kPermissionDenied, gateway::kTpmOtherSerial);

  // A credential for one, answered by another: the other's cannot even open it.
  proto::EnrolNodeRequest request = Request("s-1", own.get());
  EXPECT_TRUE(absl::IsUnavailable(Answer(request, *other)));
  request.mutable_tpm()->set_answer(std::string(tpm::kAnswerBytes, 'x'));
  proto::EnrolReply reply;
  Refused(Send(request, &reply), kPermissionDenied, gateway::kTpmWrongAnswer);
  // An answer again, though the one before was right; for another key; for another serial number.
  request = Request("s-1", own.get());
  ASSERT_TRUE(Answer(request, *own).ok());
  ASSERT_TRUE(Send(request, &reply).ok());
  proto::EnrolNodeRequest replayed = Request("s-1", own.get());
  *replayed.mutable_tpm() = request.tpm();
  Refused(Send(replayed, &reply), kUnavailable, gateway::kTpmChallengeUnknown);
  request = Request("s-1", own.get());
  ASSERT_TRUE(Answer(request, *own).ok());
  replayed = Request("s-1", own.get());
  *replayed.mutable_tpm() = request.tpm();
  Refused(Send(replayed, &reply), kPermissionDenied, gateway::kTpmWrongAnswer);
  Refused(Send(request, &reply), kUnavailable, gateway::kTpmChallengeUnknown);
  // Keys of no kind that is known.
  request = Request("s-1", own.get());
  request.mutable_tpm()->set_attestation_key(own->endorsement_key());
  Refused(Send(request, &reply), kInvalidArgument, gateway::kTpmRefused);

  // Forgotten, it waits like any other.
  ASSERT_EQ(Node("rm s-1").code, 0);
  Refused(EnrolBy("s-1", *own), kUnavailable, gateway::kWaitingForApproval);
  const std::string log = cluster_.gateway().err();
  for (const char* word : {"word=tpm_other ", "word=tpm_missing", "word=tpm_wrong_answer"})
    EXPECT_NE(log.find(word), std::string::npos) << word;
}

// The worker as process 1 starts it: by claim once, then by its TPM; and without one that answers.
TEST_F(NodeTpmTest, ANodesWorker_ComesByClaimOnce_AndThenByItsTpm) {
  OB_NEEDS_SWTPM();
  StartGateway();
  const SoftwareTpm chip;
  const std::string tpm = "OUTBOARD_NODE_TPM=" + chip.where();
  const auto forget = [&] {  // what is in the machine's memory alone
    std::filesystem::remove_all(cluster_.folder() / "node-s-1");
  };
  {
    const auto worker = cluster_.Start(WorkerArgs("s-1", Claim("s-1")), {tpm});
    EXPECT_NE(worker->err().find("event=node_tpm endorsement_key=sha256:"), std::string::npos)
        << worker->err();
    EXPECT_NE(cluster_.gateway().err().find("proof=claim"), std::string::npos);
    EXPECT_EQ(worker->Stop(SIGINT), 0) << worker->err();
  }
  forget();
  {
    const auto worker = cluster_.Start(WorkerArgs("s-1", ""), {tpm});
    EXPECT_NE(cluster_.gateway().err().find("proof=tpm"), std::string::npos)
        << cluster_.gateway().err();
    EXPECT_EQ(worker->Stop(SIGINT), 0) << worker->err();
  }
  // A TPM that is gone: another machine says so and comes in the other ways; this one does not.
  const auto run = [&](const std::string& args) {
    std::vector<std::string> argv = {test::kOutboardProgram};
    for (std::string& word : Words(args)) argv.push_back(std::move(word));
    return RunToEnd(argv, {"OUTBOARD_NODE_TPM=swtpm:path=/nonexistent/tpm"});
  };
  const Ended other = run(WorkerArgs("s-2", ""));
  EXPECT_NE(other.err.find("event=node_tpm message="), std::string::npos) << other.err;
  EXPECT_NE(other.err.find(gateway::kWaitingForApproval), std::string::npos) << other.err;
  EXPECT_EQ(other.err.find("tss2"), std::string::npos) << "one line alone: " << other.err;
  forget();
  const Ended own = run(WorkerArgs("s-1", Claim("s-1")));
  EXPECT_NE(own.err.find(gateway::kTpmMissing), std::string::npos) << own.err;
}

// What root on a node has taken away, its key and its certificate, is good until it expires.
TEST_F(NodeTpmTest, ACertificate_IsRenewedByItsTpmAlone) {
  OB_NEEDS_SWTPM();
  StartGateway();
  const SoftwareTpm chip, stranger;
  const auto own = worker::NodeTpm::Open(chip.where()).value();
  const auto other = worker::NodeTpm::Open(stranger.where()).value();
  const tls::PrivateKey key = tls::PrivateKey::Generate().value();
  proto::EnrolNodeRequest request = Request("s-1", own.get(), Claim("s-1"));
  request.set_certificate_request(tls::MakeRequest(key).value());
  ASSERT_TRUE(Answer(request, *own).ok());
  proto::EnrolReply reply;
  ASSERT_TRUE(Send(request, &reply).ok());
  const auto copied = std::make_shared<const tls::KeyAndChain>(tls::KeyAndChain{
      key, tls::Certificate::ParseAll("its", reply.certificate_chain()).value()});

  Refused(Enrol("s-1", "", copied), kPermissionDenied, gateway::kTpmMissing);
  Refused(EnrolKey(key, "s-1", ""), kPermissionDenied, gateway::kTpmMissing);
  request = Request("s-1", other.get());
  ASSERT_TRUE(Answer(request, *other, copied).ok());
  Refused(Send(request, &reply, copied), kPermissionDenied, gateway::kTpmOther);
  // The node itself; what it had stays good.
  request = Request("s-1", own.get());
  ASSERT_TRUE(Answer(request, *own, copied).ok());
  EXPECT_TRUE(Send(request, &reply, copied).ok());
  EXPECT_NE(cluster_.gateway().err().find("proof=certificate"), std::string::npos);
  EXPECT_TRUE(Log(copied, "still here").ok());
  // One that has never shown a TPM renews as before, and nobody's TPM becomes it by that.
  Identity without;
  ASSERT_TRUE(Enrol("s-2", Claim("s-2"), nullptr, &without).ok());
  request = Request("s-2", other.get());
  EXPECT_TRUE(Send(request, &reply, without).ok());
  EXPECT_FALSE(reply.certificate_chain().empty());
  EXPECT_EQ(Node("show s-2").out.find(KeyOf(*other)), std::string::npos);
}

TEST_F(NodeTpmTest, ItsWorker_ProvesItsTpm_WheneverItRenews) {
  OB_NEEDS_SWTPM();
  StartGateway("--worker-certificate-life 9");
  const SoftwareTpm chip;
  const auto worker =
      cluster_.Start(WorkerArgs("s-1", Claim("s-1")), {"OUTBOARD_NODE_TPM=" + chip.where()});
  EXPECT_TRUE(Eventually([&] {
    return cluster_.gateway().err().find("proof=certificate") != std::string::npos;
  })) << cluster_.gateway().err();
  EXPECT_EQ(worker->err().find("certificate_not_renewed"), std::string::npos) << worker->err();
}

// To leave would cost its sessions, and bring nothing: the gateway renews for that TPM alone.
TEST_F(NodeTpmTest, WhoseTpmStopsAnswering_StaysWhileItsCertificateIsGood) {
  OB_NEEDS_SWTPM();
  StartGateway("--worker-certificate-life 12");
  std::optional<SoftwareTpm> chip(std::in_place);
  const auto worker =
      cluster_.Start(WorkerArgs("s-1", Claim("s-1")), {"OUTBOARD_NODE_TPM=" + chip->where()});
  const auto joins = [&] {
    const std::string said = cluster_.gateway().err();
    size_t count = 0;
    for (size_t at = 0; (at = said.find("event=worker_joined", at)) != std::string::npos; ++at)
      ++count;
    return count;
  };
  ASSERT_TRUE(Eventually([&] { return joins() == 1; })) << cluster_.gateway().err();
  chip.reset();
  ASSERT_TRUE(Eventually([&] {
    return worker->err().find("enrols without its TPM") != std::string::npos;
  })) << worker->err();
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // it has no reason to leave
  EXPECT_EQ(joins(), 1u) << worker->err();
}

// A claim is good once: it is not lost on a machine whose TPM there is no room for.
TEST_F(NodeTpmTest, WhereThereAreTooManyTpms_TheClaimStaysGood) {
  OB_NEEDS_SWTPM();
  StartGateway();
  const SoftwareTpm chip;
  const auto own = worker::NodeTpm::Open(chip.where()).value();
  const auto change = [&](const std::string& sql) {
    auto db = storage::Database::Open(gateway::AccountsPath(cluster_.data()), {});
    ASSERT_TRUE(db.ok()) << db.status();
    auto statement = (*db)->Prepare(sql);
    ASSERT_TRUE(statement.ok()) << statement.status();
    ASSERT_TRUE(statement->Run().ok());
  };
  change("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < " +
         std::to_string(gateway::kNodeTpmsMax) +
         ") INSERT INTO node_tpm SELECT 'sha256:' || i, '', 0 FROM n");
  const std::string claim = Claim("s-1");
  const absl::Status full = EnrolBy("s-1", *own, claim);
  EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
  change("DELETE FROM node_tpm WHERE endorsement_key = 'sha256:7'");
  const absl::Status status = EnrolBy("s-1", *own, claim);
  EXPECT_TRUE(status.ok()) << status;
}

// ---- makers

// A CA's certificate for the TPM's endorsement key, as its maker puts it there; `use`: an extended
// key usage in OpenSSL's words. DER.
std::string CertificateOf(worker::NodeTpm& tpm, const tls::Authority& maker,
                          const char* use = "2.23.133.8.1") {
  const auto key = tpm::EndorsementKey::Parse(tpm.endorsement_key());
  X509* const made = X509_new();
  X509_set_version(made, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(made), 7);
  X509_gmtime_adj(X509_getm_notBefore(made), -60);
  X509_gmtime_adj(X509_getm_notAfter(made), 3600);
  X509_set_pubkey(made, key->get());
  X509_set_issuer_name(made, X509_get_subject_name(maker.certificate().get()));
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, NID_ext_key_usage, use);
  X509_add_ext(made, extension, -1);
  X509_EXTENSION_free(extension);
  EXPECT_GT(X509_sign(made, maker.key_and_chain().key.get(), EVP_sha256()), 0);
  unsigned char* der = nullptr;
  const int size = i2d_X509(made, &der);
  std::string bytes(reinterpret_cast<const char*>(der), static_cast<size_t>(size));
  OPENSSL_free(der);
  X509_free(made);
  return bytes;
}

TEST_F(NodeTpmTest, WithRoots_OnlyTpmsOfTheirMakersAreLetIn_OrThoseThatAreExpected) {
  OB_NEEDS_SWTPM();
  const auto maker = tls::Authority::Generate("a maker").value();
  const auto stranger = tls::Authority::Generate("a maker").value();
  const std::string roots = cluster_.folder() / "makers.pem";
  std::ofstream(roots) << maker.certificate().ToPem();
  StartGateway("--tpm-roots " + roots);
  EXPECT_NE(cluster_.gateway().err().find("event=tpm_makers_read"), std::string::npos);
  const SoftwareTpm chip, other_chip;
  const auto tpm = worker::NodeTpm::Open(chip.where()).value();
  const auto other = worker::NodeTpm::Open(other_chip.where()).value();
  const std::string claim = Claim("s-1");
  const auto enrol = [&](const std::string& certificate) {
    proto::EnrolNodeRequest request = Request("s-1", tpm.get(), claim);
    request.mutable_tpm()->set_endorsement_certificate(certificate);
    if (const absl::Status status = Answer(request, *tpm); !status.ok()) return status;
    proto::EnrolReply reply;
    return Send(request, &reply);
  };
  std::string altered = CertificateOf(*tpm, maker);
  altered[altered.size() - 9] ^= 1;  // its signature
  for (const std::string& bad :
       {std::string(), CertificateOf(*tpm, stranger), altered, CertificateOf(*other, maker),
        CertificateOf(*tpm, maker, "serverAuth")})
    Refused(enrol(bad), kPermissionDenied, gateway::kTpmNotTrusted);
  // A machine that shows no TPM is let in as ever.
  EXPECT_TRUE(Enrol("s-2", Claim("s-2")).ok());
  EXPECT_TRUE(enrol(CertificateOf(*tpm, maker)).ok());
  EXPECT_NE(cluster_.gateway().err().find("\"a maker\""), std::string::npos)
      << cluster_.gateway().err();
  // From then on it is known by its key. So is one whose key an operator expects.
  EXPECT_TRUE(enrol("").ok());
  ASSERT_EQ(Node("expect --ek " + KeyOf(*other)).code, 0);
  EXPECT_TRUE(EnrolBy("s-3", *other).ok());
}

TEST(TpmRoots, AFileWithoutACertificate_IsRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(tpm::MakerRoots::Parse("roots", "none").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(tpm::MakerRoots::Parse("roots", "").status()));
  EXPECT_EQ(tpm::MakerRoots::Parse(
                "roots", tls::Authority::Generate("a").value().certificate().ToPem())
                .value()
                .count(),
            1u);
}

// ---- without a TPM

std::string SomeKey() {
  std::string key = tpm::EndorsementTemplate(tpm::KeyKind::kRsa2048);
  key[key.size() - 256] = '\x80';
  key.back() = 1;
  return key;
}
// The base point of P-256 (SEC 2, 2.4.2), as an attestation key.
std::string SomeAttestationKey() {
  std::string key = tpm::AttestationTemplate();
  key.resize(key.size() - 68);
  return key + std::string("\0\x20", 2) +
         absl::HexStringToBytes(
             "6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296") +
         std::string("\0\x20", 2) +
         absl::HexStringToBytes("4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5");
}

TEST(TpmChallenges, AreFew_ShortLived_AndGoodForOneAnswer) {
  gateway::TpmChallenges challenges;
  proto::EnrolNodeRequest request;
  request.set_certificate_request("request");
  request.mutable_facts()->set_serial("s-1");
  request.mutable_tpm()->set_endorsement_key(SomeKey());
  request.mutable_tpm()->set_attestation_key(SomeAttestationKey());
  const auto ask = [&](const std::string& address, int64_t at_ns) {
    return challenges.Check(request, address, {at_ns});
  };
  const auto word = [](const auto& outcome) {
    return std::string(gateway::NodeWord(std::string(outcome.status().message())));
  };
  const auto first = ask("ipv4:192.0.2.7:1", 0);
  ASSERT_TRUE(first.ok() && first->challenge.has_value()) << first.status();
  for (size_t i = 1; i < gateway::kChallengesPerAddressMax; ++i)
    ASSERT_TRUE(ask("ipv4:192.0.2.7:" + std::to_string(i), 0).ok());
  // Of another address: those who ask much push out each other alone.
  const auto other = ask("ipv4:192.0.2.8:9", 0);
  ASSERT_TRUE(other.ok());
  EXPECT_TRUE(ask("ipv4:192.0.2.7:9", 0).ok());
  request.mutable_tpm()->set_challenge(first->challenge->id());
  EXPECT_EQ(word(ask("ipv4:192.0.2.7:1", 0)), gateway::kTpmChallengeUnknown) << "it made room";
  request.mutable_tpm()->set_challenge(other->challenge->id());
  EXPECT_EQ(word(ask("ipv4:192.0.2.8:9", 0)), gateway::kTpmWrongAnswer) << "it is still there";

  request.mutable_tpm()->clear_challenge();
  const auto old = ask("ipv4:192.0.2.7:1", 0);
  ASSERT_TRUE(old.ok());
  request.mutable_tpm()->set_challenge(old->challenge->id());
  EXPECT_EQ(word(ask("ipv4:192.0.2.7:1", gateway::kChallengeLifeNs)),
            gateway::kTpmChallengeUnknown);

  request.mutable_tpm()->clear_challenge();
  const auto second = ask("ipv4:192.0.2.7:1", gateway::kChallengeLifeNs);
  ASSERT_TRUE(second.ok());
  request.mutable_tpm()->set_challenge(second->challenge->id());
  EXPECT_EQ(word(ask("ipv4:192.0.2.7:1", gateway::kChallengeLifeNs)), gateway::kTpmWrongAnswer);
  EXPECT_EQ(word(ask("ipv4:192.0.2.7:1", gateway::kChallengeLifeNs)),
            gateway::kTpmChallengeUnknown);
  request.mutable_tpm()->set_challenge(std::string(17, 'x'));
  EXPECT_EQ(word(ask("ipv4:192.0.2.7:1", 0)), gateway::kTpmRefused);
  request.mutable_tpm()->clear_challenge();
  // One that cannot be read refuses nobody here: whether makers must be known is for who asks.
  request.mutable_tpm()->set_endorsement_certificate("x");
  const auto with_certificate = ask("ipv4:192.0.2.7:1", 0);
  ASSERT_TRUE(with_certificate.ok()) << with_certificate.status();
  EXPECT_TRUE(with_certificate->challenge.has_value());
  EXPECT_TRUE(absl::IsInvalidArgument(with_certificate->issuer.status()));
}

TEST(NodeTpms, OneKeyIsOneNode) {
  const TempFolder folder;
  const auto tpms = gateway::NodeTpms::Open(folder / "accounts.db").value();
  constexpr gateway::WallTime kNow{1'764'000'000'000};
  EXPECT_TRUE(tpms->Bind("sha256:a", "", kNow).ok());
  EXPECT_TRUE(tpms->Bind("sha256:b", "", kNow).ok());
  EXPECT_TRUE(tpms->Bind("sha256:a", "s-1", kNow).ok());
  EXPECT_TRUE(tpms->Bind("sha256:a", "", kNow).ok()) << "it stays that node's";
  EXPECT_EQ(tpms->OfSerial("s-1").value()->endorsement_key, "sha256:a");
  EXPECT_TRUE(absl::IsFailedPrecondition(tpms->Bind("sha256:a", "s-2", kNow)));
  EXPECT_TRUE(absl::IsFailedPrecondition(tpms->Bind("sha256:b", "s-1", kNow)));
  EXPECT_TRUE(absl::IsInvalidArgument(tpms->Bind("sha256:b", "../s", kNow)));
  EXPECT_EQ(tpms->List()->size(), 2u);
  EXPECT_TRUE(absl::IsNotFound(tpms->Remove("")));
  EXPECT_TRUE(tpms->Remove("s-1").ok());
  EXPECT_TRUE(tpms->Remove("sha256:b").ok());
  EXPECT_EQ(tpms->List()->size(), 0u);
}

}  // namespace
}  // namespace outboard::test
