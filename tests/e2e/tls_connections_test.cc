// TLS between clients, gateway and workers, with real processes: what works, what is refused and in
// which words, and that nothing is sent to whoever is refused.
#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "client/session/link/bulk.h"
#include "client/session/link/grpc_link.h"
#include "client/session/session.h"
#include "gateway/tls/authority_files.h"
#include "proto/fleet.grpc.pb.h"
#include "tests/net/fault_proxy.h"
#include "tests/support/cluster.h"
#include "tests/support/recording_server.h"
#include "tests/support/step.h"
#include "wire/blobs/upload.h"
#include "wire/status.h"
#include "wire/tls/authority.h"
#include "wire/tls/handshake.h"
#include "wire/tls/private_file.h"

namespace outboard {
namespace {

using session::Protection;
using test::RecordingServer;
using tls::Authority;

constexpr char kKey[] = "ob_live_0123456789abcdef_of_nobody_but_the_owner";

std::string FingerprintOf(const test::Cluster& cluster) {
  return ValueOrDie(gateway::FingerprintForClients(cluster.data()));
}

Protection Pinned(const std::string& fingerprint) {
  return ValueOrDie(Protection::Trusting("", fingerprint, {}));
}

TEST(Tls, StepsAndUploadsGoThroughIt) {
  test::Cluster cluster;
  cluster.StartUp(1, "--tls");
  const std::string fingerprint = FingerprintOf(cluster);
  EXPECT_NE(cluster.gateway().out().find("CLOUD_FINGERPRINT=" + fingerprint), std::string::npos);
  session::SessionOptions options = cluster.Options();
  options.protection = Pinned(fingerprint);
  auto session = Session::Connect(options);
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE(test::Step(**session).ok());
  const auto connections =
      session::MakeBulkConnections(cluster.target(), cluster.key(), options.protection);
  const std::string bytes(9 << 20, 'x');
  const wire::BlobSource source{
      bytes.size(), [&](uint64_t offset, std::span<char> out) -> absl::Status {
        std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
        return absl::OkStatus();
      }};
  const auto uploaded = wire::UploadBlobs(connections, {&source, 1});
  ASSERT_TRUE(uploaded.ok()) << uploaded.status();
  EXPECT_GT(uploaded->sent_bytes, 0u);
  EXPECT_TRUE((*session)->Close().ok());
  // Commands take the same variables.
  const std::vector<std::string> environment = {"CLOUD_KEY=" + cluster.key(),
                                                "CLOUD_FINGERPRINT=" + fingerprint};
  const test::Ended usage = test::Outboard("usage --gateway " + cluster.target(), environment);
  EXPECT_EQ(usage.code, 0) << usage.err;
  const test::Ended stored = test::Outboard("store ls --gateway " + cluster.target(), environment);
  EXPECT_EQ(stored.code, 0) << stored.err;
}

TEST(Tls, KeyCreatePrintsTheFingerprintBesideTheKey) {
  test::Cluster cluster;
  cluster.StartUp(1, "--tls");
  const test::Ended made = test::Outboard("key create --data " + cluster.data());
  EXPECT_NE(made.err.find("CLOUD_FINGERPRINT=" + FingerprintOf(cluster)), std::string::npos);
  EXPECT_EQ(made.out.find("sha256"), std::string::npos);  // CLOUD_KEY=$(outboard key create)
  const test::Ended json = test::Outboard("key create --json --data " + cluster.data());
  EXPECT_NE(json.out.find("\"fingerprint\": \"" + FingerprintOf(cluster)), std::string::npos);
  const test::Ended shown = test::Outboard("cert show --fingerprint --data " + cluster.data());
  EXPECT_EQ(shown.out, FingerprintOf(cluster) + "\n");
}

// HOSTILE.md: whoever is not the gateway learns nothing.
TEST(Tls, ARefusedServerGetsNothingAndTheUserTheReason) {
  const test::TempFolder folder;
  const Authority ours = ValueOrDie(Authority::Generate("ours"));
  const Authority theirs = ValueOrDie(Authority::Generate("theirs"));
  const std::string ca = folder / "ca.pem";
  ASSERT_TRUE(tls::WriteFile(ca, ours.certificate().ToPem(), false, tls::Replace::kNo).ok());
  const std::string pin = ours.certificate().fingerprint().ToString();
  const auto issued = [](const Authority& by, const std::string& name, int64_t lifetime_s = 3600) {
    return ValueOrDie(by.Issue({.common_name = name, .names = {name}, .lifetime_s = lifetime_s}));
  };
  const struct {
    const char* what;
    std::optional<tls::KeyAndChain> presents;
    std::string ca_file, fingerprint;
    const char* says;
  } cases[] = {
      {"expired", issued(ours, "127.0.0.1", -10), ca, "", "expired on"},
      {"expired, pinned", issued(ours, "127.0.0.1", -10), "", pin, "expired on"},
      {"another CA", issued(theirs, "127.0.0.1"), ca, "", "of another CA"},
      {"another CA, pinned", issued(theirs, "127.0.0.1"), "", pin, "of another CA"},
      {"another name", issued(ours, "10.1.2.3"), ca, "", "for another name (10.1.2.3)"},
      {"no TLS", std::nullopt, ca, "", "does not speak TLS"},
  };
  for (const auto& c : cases) {
    RecordingServer server(c.presents);
    session::SessionOptions options;
    options.target = absl::StrCat("127.0.0.1:", server.port());
    options.key = kKey;
    options.protection = ValueOrDie(Protection::Trusting(c.ca_file, c.fingerprint, {}));
    const absl::Status status = Session::Connect(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << c.what << ": " << status;
    EXPECT_NE(status.message().find(c.says), std::string::npos) << c.what << ": " << status;
    EXPECT_NE(status.message().find(options.target), std::string::npos) << c.what;
    EXPECT_EQ(status.message().find(kKey), std::string::npos);
    EXPECT_GT(server.connections(), 0) << c.what;
    EXPECT_EQ(server.received().find("ob_live"), std::string::npos) << c.what;
    if (c.presents.has_value()) {
      EXPECT_EQ(server.received(), "") << c.what;  // after the handshake
    }
    const test::Ended command =
        test::Outboard("usage --gateway " + options.target,
                       {std::string("CLOUD_KEY=") + kKey, "CLOUD_CA=" + c.ca_file,
                        "CLOUD_FINGERPRINT=" + c.fingerprint});
    EXPECT_EQ(command.code, 2) << c.what;
    EXPECT_NE(command.err.find(c.says), std::string::npos) << c.what << ": " << command.err;
    EXPECT_EQ(server.received().find("ob_live"), std::string::npos) << c.what;
  }
}

TEST(Tls, BeyondThisMachineItIsTlsUnlessToldOtherwise) {
  const Protection by_address;
  EXPECT_FALSE(by_address.UsesTls("localhost:6667"));
  EXPECT_FALSE(by_address.UsesTls("127.0.0.1:6667"));
  EXPECT_FALSE(by_address.UsesTls("[::1]:6667"));
  EXPECT_FALSE(by_address.UsesTls("unix:/tmp/s"));
  EXPECT_FALSE(by_address.UsesTls("unix-abstract:outboard"));
  for (const char* far :
       {"box:6667", "10.0.0.1:6667", "[fd00::1]:6667", "localhost.evil.org:1",
        "127.0.0.1.evil.org:1", "unix-box.example.org:6667", "unix.example.org:1"})
    EXPECT_TRUE(by_address.UsesTls(far)) << far;
  EXPECT_FALSE(Protection{.in_the_clear = true}.UsesTls("box:6667"));
  EXPECT_TRUE(Protection{.also_here = true}.UsesTls("localhost:6667"));
  EXPECT_FALSE(Protection{.also_here = true}.UsesTls("unix:/tmp/s"));
}

TEST(Tls, ItsVariablesAreChecked) {
  const auto with = [](std::vector<std::string> environment) {
    environment.push_back(std::string("CLOUD_KEY=") + kKey);
    return test::Outboard("usage --gateway 127.0.0.1:1", std::move(environment));
  };
  const struct {
    std::vector<std::string> environment;
    const char* says;
  } cases[] = {
      {{"CLOUD_FINGERPRINT=sha256:1"}, "CLOUD_FINGERPRINT"},
      {{"CLOUD_CA=/nonexistent/ca.pem"}, "CLOUD_CA"},
      {{"CLOUD_CA=/dev/null"}, "CLOUD_CA"},
      {{"CLOUD_INSECURE=yes"}, "CLOUD_INSECURE"},
      {{"CLOUD_TLS=on"}, "CLOUD_TLS"},
      {{"CLOUD_INSECURE=1", "CLOUD_TLS=1"}, "unset one of them"},
  };
  for (const auto& c : cases) {
    const test::Ended ended = with(c.environment);
    EXPECT_EQ(ended.code, 2) << c.says;
    EXPECT_NE(ended.err.find(c.says), std::string::npos) << ended.err;
    EXPECT_EQ(ended.err.find(kKey), std::string::npos);
  }
}

TEST(Tls, APlainClientOfATlsServerIsToldSo) {
  test::Cluster cluster;
  cluster.StartUp(1, "--tls");
  test::FaultProxy proxy(cluster.target());  // past the socket for this machine only
  session::SessionOptions options = cluster.Options();
  options.target = proxy.address();
  const absl::Status status = Session::Connect(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("speaks TLS"), std::string::npos) << status;
  EXPECT_NE(status.message().find("CLOUD_FINGERPRINT"), std::string::npos) << status;
}

TEST(Tls, OneDotTwoIsRefused) {
  test::Cluster cluster;
  cluster.StartUp(1, "--tls");
  for (const auto& [version, accepted] :
       {std::pair(TLS1_2_VERSION, false), {TLS1_3_VERSION, true}}) {
    SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_max_proto_version(context, version);
    SSL_CTX_set_min_proto_version(context, version);
    BIO* const bio = BIO_new_ssl_connect(context);
    BIO_set_conn_hostname(bio, cluster.target().c_str());
    EXPECT_EQ(BIO_do_connect(bio) == 1, accepted) << version;
    BIO_free_all(bio);
    SSL_CTX_free(context);
  }
}

TEST(Tls, ACertificateThatIsReplacedIsPresentedWithoutARestart) {
  test::Cluster cluster;
  const test::TempFolder folder;
  const Authority authority = ValueOrDie(Authority::Generate("given"));
  const auto write = [&] {
    const tls::KeyAndChain made =
        ValueOrDie(authority.Issue({.common_name = "box", .names = {"127.0.0.1", "localhost"}}));
    EXPECT_TRUE(tls::WriteFile(folder / "b.key", made.key.ToPem(), true, tls::Replace::kYes).ok());
    EXPECT_TRUE(
        tls::WriteFile(folder / "b.pem", made.ChainToPem(), false, tls::Replace::kYes).ok());
    return made.chain.front().serial();
  };
  const std::string first = write();
  cluster.StartUp(1, "--tls-cert " + folder / "b.pem" + " --tls-key " + folder / "b.key");
  const auto presented = [&] {
    const auto found = tls::ShakeHands(cluster.target(), std::chrono::seconds(5));
    return found.chain.empty() ? std::string() : found.chain.front().serial();
  };
  EXPECT_EQ(presented(), first);
  session::SessionOptions options = cluster.Options();
  options.protection = Protection{.also_here = true, .trust = {.roots = {authority.certificate()}}};
  auto session = Session::Connect(options);  // stays across it
  ASSERT_TRUE(session.ok()) << session.status();
  // A file that is damaged, or a key that is not the certificate's, changes nothing.
  ASSERT_TRUE(tls::WriteFile(folder / "b.pem", "damaged", false, tls::Replace::kYes).ok());
  EXPECT_TRUE(test::Eventually([&] {
    return cluster.gateway().err().find("certificate_not_renewed") != std::string::npos;
  })) << cluster.gateway().err();
  EXPECT_EQ(presented(), first);
  const std::string second = write();
  EXPECT_TRUE(test::Eventually([&] { return presented() == second; }));
  EXPECT_TRUE(test::Step(**session).ok());
  EXPECT_TRUE((*session)->Close().ok());
  EXPECT_TRUE(Session::Connect(options).ok());
  // The gateway's own is replaced by a command.
  test::Cluster own;
  own.StartUp(1, "--tls");
  const auto serial = [&] {
    return tls::ShakeHands(own.target(), std::chrono::seconds(5)).chain.front().serial();
  };
  const std::string before = serial();
  const std::string fingerprint = FingerprintOf(own);
  const test::Ended renewed = test::Outboard("cert renew --data " + own.data());
  ASSERT_EQ(renewed.code, 0) << renewed.err;
  EXPECT_TRUE(test::Eventually([&] { return serial() != before; }));
  session::SessionOptions pinned = own.Options();
  pinned.protection = Pinned(fingerprint);  // it is the CA's, so it stays
  EXPECT_TRUE(Session::Connect(pinned).ok());
}

TEST(Tls, ServersRefuseCertificatesTheyCannotUse) {
  const test::TempFolder folder;
  const Authority authority = ValueOrDie(Authority::Generate("given"));
  const auto made = ValueOrDie(authority.Issue({.common_name = "a", .names = {"a"}}));
  const auto other = ValueOrDie(authority.Issue({.common_name = "b", .names = {"b"}}));
  ASSERT_TRUE(tls::WriteFile(folder / "a.pem", made.ChainToPem(), false, tls::Replace::kNo).ok());
  ASSERT_TRUE(tls::WriteFile(folder / "b.key", other.key.ToPem(), true, tls::Replace::kNo).ok());
  ASSERT_TRUE(tls::WriteFile(folder / "open.key", made.key.ToPem(), false, tls::Replace::kNo).ok());
  const std::string start =
      "gateway --listen 127.0.0.1:0 --fleet-listen 127.0.0.1:0 --data " + folder / "data ";
  const struct {
    std::string flags;
    const char* says;
  } cases[] = {
      {"--tls-cert " + folder / "a.pem", "give both"},
      {"--tls-cert " + folder / "a.pem" + " --tls-key " + folder / "b.key", "private key"},
      {"--tls-cert " + folder / "a.pem" + " --tls-key " + folder / "open.key", "chmod 600"},
      {"--tls-cert " + folder / "none" + " --tls-key " + folder / "b.key", "cannot read"},
      {"--tls --insecure", "--insecure"},
      {"--tls --tls-name a,b", "no name of a certificate"},
  };
  for (const auto& c : cases) {
    const test::Ended ended = test::Outboard(start + c.flags);
    EXPECT_EQ(ended.code, 2) << c.flags;
    EXPECT_NE(ended.err.find(c.says), std::string::npos) << c.flags << ": " << ended.err;
  }
}

TEST(Tls, TheCertCommandMakesAndNeverOverwrites) {
  const test::TempFolder folder;
  const std::string data = " --data " + folder / "data", out = folder / "proxy";
  EXPECT_EQ(test::Outboard("cert issue proxy.example.org" + data).code, 2);  // no CA yet
  const test::Ended made = test::Outboard("cert init --name box.example.org" + data);
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_NE(made.err.find("CLOUD_FINGERPRINT=sha256:"), std::string::npos);
  const std::string ca = test::ReadFile(folder / "data/tls/ca.pem");
  EXPECT_EQ(test::Outboard("cert init" + data).code, 1);
  EXPECT_EQ(test::ReadFile(folder / "data/tls/ca.pem"), ca);
  const std::string issue = "cert issue proxy.example.org 10.0.0.1 -o " + out + data;
  ASSERT_EQ(test::Outboard(issue).code, 0);
  const std::string first = test::ReadFile(out + ".pem");
  EXPECT_EQ(std::filesystem::status(out + ".key").permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  EXPECT_EQ(test::Outboard(issue).code, 1);
  EXPECT_EQ(test::ReadFile(out + ".pem"), first);
  const test::Ended shown = test::Outboard("cert show " + out + ".pem");
  EXPECT_NE(shown.out.find("proxy.example.org, 10.0.0.1"), std::string::npos) << shown.out;
  ASSERT_EQ(test::Outboard("cert renew " + out + ".pem" + data).code, 0);
  EXPECT_NE(test::ReadFile(out + ".pem"), first);
  EXPECT_TRUE(
      tls::KeyAndChain::Parse("renewed", test::ReadFile(out + ".key"), test::ReadFile(out + ".pem"))
          .ok());
  ASSERT_EQ(test::Outboard("cert init --force" + data).code, 0);
  EXPECT_NE(test::ReadFile(folder / "data/tls/ca.pem"), ca);
  EXPECT_EQ(test::Outboard("cert renew " + out + ".pem" + data).code, 2);  // of another CA now
  for (const char* wrong : {"cert issue a,b", "cert show /nonexistent", "cert revoke x"})
    EXPECT_NE(test::Outboard(wrong + data).code, 0) << wrong;
}

// ---- workers
// -------------------------------------------------------------------------------------

class FleetTls : public ::testing::Test {
 protected:
  void Start(const std::string& more = "") {
    cluster_.StartGateway("--tls " + more);
    authority_.emplace(ValueOrDie(gateway::ReadAuthority(cluster_.data())));
    secret_ = Words()[0];
  }
  std::vector<std::string> Words() const {
    return test::Words(test::ReadFile(cluster_.data() + "/fleet.secret"));
  }
  std::unique_ptr<proto::Fleet::Stub> Fleet(std::shared_ptr<const tls::KeyAndChain> identity) {
    Protection protection = Pinned(authority_->certificate().fingerprint().ToString());
    protection.identity = std::move(identity);
    return proto::Fleet::NewStub(session::MakeChannel(cluster_.fleet_target(), protection));
  }
  absl::Status Keep(std::shared_ptr<const tls::KeyAndChain> identity) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + secret_);
    proto::KeepReply reply;
    return wire::FromGrpc(Fleet(std::move(identity))->Keep(&context, {}, &reply));
  }
  absl::Status Join(std::shared_ptr<const tls::KeyAndChain> identity) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + secret_);
    const auto stub = Fleet(std::move(identity));
    const auto stream = stub->Join(&context);
    proto::WorkerEvent hello;
    hello.mutable_register_();  // of no device: refused, once anybody reads it
    stream->Write(hello);
    proto::GatewayCommand command;
    while (stream->Read(&command)) {
    }
    return wire::FromGrpc(stream->Finish());
  }
  session::SessionOptions Options() {
    session::SessionOptions options = cluster_.Options();
    options.protection = Pinned(FingerprintOf(cluster_));
    return options;
  }

  test::Cluster cluster_;
  std::optional<Authority> authority_;
  std::string secret_;
};

TEST_F(FleetTls, NobodyJoinsWithoutACertificateOfTheGateways) {
  Start();
  // What a worker on another machine needs is in the file that it is given.
  ASSERT_EQ(Words().size(), 2u);
  EXPECT_EQ(Words()[1], authority_->certificate().fingerprint().ToString());
  const Authority theirs = ValueOrDie(Authority::Generate("theirs"));
  const auto issued = [](const Authority& by, tls::Purpose purpose, int64_t lifetime_s) {
    return std::make_shared<const tls::KeyAndChain>(ValueOrDie(by.Issue(
        {.common_name = "outboard worker", .purpose = purpose, .lifetime_s = lifetime_s})));
  };
  const struct {
    const char* what;
    std::shared_ptr<const tls::KeyAndChain> identity;
    const char* says;
  } cases[] = {
      {"none", nullptr, "asks workers for a certificate"},
      {"of another CA", issued(theirs, tls::Purpose::kWorker, 60), "of another CA"},
      {"expired", issued(*authority_, tls::Purpose::kWorker, -10), "expired"},
      {"a server's", issued(*authority_, tls::Purpose::kServer, 60), "this purpose"},
  };
  for (const auto& c : cases) {
    for (const absl::Status& status : {Join(c.identity), Keep(c.identity)}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated) << c.what << ": " << status;
      EXPECT_NE(status.message().find(c.says), std::string::npos) << c.what << ": " << status;
    }
  }
  // With one the call reaches its service, which has other questions.
  const absl::Status served = Keep(issued(*authority_, tls::Purpose::kWorker, 60));
  EXPECT_NE(served.message().find("outboard-session"), std::string::npos) << served;
}

TEST_F(FleetTls, EnrollingTakesTheFleetSecretAndARequest) {
  Start();
  const tls::PrivateKey key = ValueOrDie(tls::PrivateKey::Generate());
  const auto enrol = [&](const std::string& secret, const std::string& request) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + secret);
    proto::EnrolRequest message;
    message.set_certificate_request(request);
    message.set_name("a worker\nwith a line break");
    proto::EnrolReply reply;
    const absl::Status status = wire::FromGrpc(Fleet(nullptr)->Enrol(&context, message, &reply));
    return std::pair(status, reply.certificate_chain());
  };
  const std::string request = ValueOrDie(tls::MakeRequest(key));
  EXPECT_TRUE(absl::IsUnauthenticated(enrol("wrong", request).first));
  EXPECT_TRUE(absl::IsUnauthenticated(enrol("", request).first));
  EXPECT_TRUE(absl::IsInvalidArgument(enrol(secret_, "no request").first));
  EXPECT_EQ(ValueOrDie(gateway::ReadIssued(cluster_.data())).size(), 0u);
  const auto [status, pem] = enrol(secret_, request);
  ASSERT_TRUE(status.ok()) << status;
  const auto chain = ValueOrDie(tls::Certificate::ParseAll("chain", pem));
  EXPECT_TRUE(key.Fits(chain.front()));
  EXPECT_LT(chain.front().not_after(), absl::Now() + absl::Hours(25));
  EXPECT_GT(chain.front().not_after(), absl::Now() + absl::Hours(23));
  const auto record = ValueOrDie(gateway::ReadIssued(cluster_.data()));
  ASSERT_EQ(record.size(), 1u);
  EXPECT_EQ(record[0].serial, chain.front().serial());
  EXPECT_EQ(record[0].name.find('\n'), std::string::npos);
  // The clients' port issues nothing, whoever asks.
  grpc::ClientContext context;
  context.AddMetadata("authorization", "Bearer " + secret_);
  proto::EnrolReply reply;
  const auto at_clients = proto::Fleet::NewStub(
      session::MakeChannel(cluster_.target(), Pinned(FingerprintOf(cluster_))));
  EXPECT_EQ(at_clients->Enrol(&context, {}, &reply).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(FleetTls, AWorkerRenewsItsCertificateAndItsSessionGoesOn) {
  Start("--worker-certificate-life 6");
  const auto worker = cluster_.StartWorker("--tls");
  auto session = Session::Connect(Options());
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(test::Step(**session).ok());
  const auto issued = [&] { return ValueOrDie(gateway::ReadIssued(cluster_.data())); };
  ASSERT_EQ(issued().size(), 1u);
  const std::string first = issued()[0].serial;
  // Beyond the end of the first, which is dropped from the record then.
  EXPECT_TRUE(test::Eventually([&] {
    const auto all = issued();
    return !all.empty() && all.front().serial != first && all.back().serial != first;
  }));
  EXPECT_TRUE(test::IsAlive(worker->pid())) << worker->err();
  EXPECT_TRUE(test::Step(**session).ok());
  EXPECT_TRUE((*session)->Close().ok());
}

TEST_F(FleetTls, ARevokedWorkerIsCutOffAndEnds) {
  Start();
  const auto worker = cluster_.StartWorker("--tls --name gone");
  const auto issued = ValueOrDie(gateway::ReadIssued(cluster_.data()));
  ASSERT_EQ(issued.size(), 1u);
  const test::Ended shown = test::Outboard("cert show --data " + cluster_.data());
  EXPECT_NE(shown.out.find("worker gone"), std::string::npos) << shown.out;
  EXPECT_NE(shown.out.find(issued[0].serial), std::string::npos) << shown.out;
  const test::Ended revoked = test::Outboard("cert revoke gone --data " + cluster_.data());
  ASSERT_EQ(revoked.code, 0) << revoked.err;
  EXPECT_EQ(worker->Wait(), 2);
  EXPECT_NE(worker->err().find("revoked"), std::string::npos) << worker->err();
}

// Its gateway was set up anew, and knows no certificate that the one before has issued.
TEST_F(FleetTls, AWorkerThatKeptACertificateOfAnotherCaEnrolsAgain) {
  Start("--worker-tokens");
  const test::Ended token = test::Outboard("cert token gpu-1 --data " + cluster_.data());
  ASSERT_EQ(token.code, 0) << token.err;
  const std::string file = cluster_.folder() / "token";
  ASSERT_TRUE(tls::WriteFile(file, token.out, /*is_secret=*/true, tls::Replace::kNo).ok());
  const std::string flags = "--tls --name gpu-1";
  EXPECT_EQ(cluster_.StartWorker(flags + " --token-file " + file)->Stop(SIGINT), 0);
  ASSERT_TRUE(std::filesystem::exists(cluster_.folder() / "identity.pem"));
  EXPECT_FALSE(std::filesystem::exists(cluster_.folder() / "identity.pem.new"))
      << "it had its answer";

  cluster_.gateway().Stop(SIGTERM);
  const test::Ended made = test::Outboard("cert init --force --data " + cluster_.data());
  ASSERT_EQ(made.code, 0) << made.err;
  cluster_.StartGateway("--tls");
  const auto worker = cluster_.StartWorker(flags);
  auto session = Session::Connect(Options());
  ASSERT_TRUE(session.ok()) << session.status() << worker->err();
  EXPECT_TRUE(test::Step(**session).ok());
  EXPECT_TRUE(test::IsAlive(worker->pid())) << worker->err();
}

TEST_F(FleetTls, AWorkerBelievesOnlyItsGateway) {
  Start();
  const std::string wrong = "sha256:" + std::string(64, '0');
  const std::string base = "worker --gateway " + cluster_.fleet_target() + " --fleet-secret-file " +
                           cluster_.data() + "/fleet.secret ";
  const test::Ended other = test::Outboard(base + "--tls-fingerprint " + wrong);
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("of another CA"), std::string::npos) << other.err;
  const test::Ended both = test::Outboard(base + "--insecure --tls");
  EXPECT_EQ(both.code, 2);
  // By the CA's file.
  const auto worker = cluster_.StartWorker("--tls-ca " + cluster_.data() + "/tls/ca.pem");
  EXPECT_TRUE(test::IsAlive(worker->pid()));
}

}  // namespace
}  // namespace outboard
