// Nodes enrol at a gateway by claim, expectation and approval; each error has its word; one that is
// removed is gone within seconds. The node's worker is `outboard worker --node-folder`, as
// process 1 starts it.
#include "gateway/nodes/node_enrolment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "tests/nodes/node_world.h"
#include "tests/support/paths.h"
#include "worker/init/node_init.h"

namespace outboard::test {
namespace {

// The table of errors (docs/fleet.md): a fixed word for each, and the log has the facts.
TEST_F(NodeTest, EachRefusal_HasItsWord) {
  StartGateway();
  EXPECT_NE(Node("expect --ek sha256:12").err.find("as `outboard node show` prints it"),
            std::string::npos);
  const std::string claim = Claim("s-1"), other = Claim("s-2");
  const tls::PrivateKey key = tls::PrivateKey::Generate().value();
  Identity first;
  const auto refused = [&](const absl::Status& status, absl::StatusCode code, const char* word) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_EQ(Word(status), word) << status;
  };
  using enum absl::StatusCode;
  refused(Enrol("s-1", other), kPermissionDenied, gateway::kClaimOtherSerial);
  refused(Enrol("s-1", "ob_claim_" + std::string(64, '0')), kPermissionDenied,
          gateway::kClaimUnknown);
  refused(Enrol("s-3", ""), kUnavailable, gateway::kWaitingForApproval);
  ASSERT_TRUE(EnrolKey(key, "s-1", claim, nullptr, &first).ok());
  // That answer was lost: its key gets another, and nobody else's does.
  EXPECT_TRUE(EnrolKey(key, "s-1", claim).ok());
  refused(Enrol("s-1", claim), kPermissionDenied, gateway::kClaimUsed);
  // Two nodes of one serial number: the first has just been let in.
  refused(Enrol("s-1", Claim("s-1")), kPermissionDenied, gateway::kSerialTaken);
  // It renews by what it has, under its own serial number alone.
  EXPECT_TRUE(Enrol("s-1", "", first).ok());
  refused(Enrol("s-4", "", first), kUnavailable, gateway::kWaitingForApproval);
  const auto expired = std::make_shared<const tls::KeyAndChain>(
      authority_
          ->Issue({.common_name = "node:s-1", .purpose = tls::Purpose::kWorker, .lifetime_s = -10})
          .value());
  refused(Enrol("s-1", "", expired), kUnauthenticated, gateway::kCertificateRefused);
  EXPECT_EQ(Enrol("", "").code(), kInvalidArgument);
  EXPECT_EQ(Enrol("../s", "").code(), kInvalidArgument);
  const std::string log = cluster_.gateway().err();
  for (const char* has : {"event=node_refused", "word=claim_used", "52:54:00:12:34:56",
                          "event=node_enrolled", "proof=claim"})
    EXPECT_NE(log.find(has), std::string::npos) << has << "\n" << log;
  EXPECT_EQ(log.find(claim), std::string::npos);
}

// Before anything is read, checked or signed for them.
TEST_F(NodeTest, AnAddressThatAsksTooOften_HearsOnlyThat) {
  StartGateway();
  const auto fleet = Fleet();
  std::string word;
  int asked = 0;
  for (; asked < 2000 && word.empty(); ++asked) {
    grpc::ClientContext context;
    proto::EnrolReply reply;
    const absl::Status status = wire::FromGrpc(fleet->EnrolNode(&context, {}, &reply));
    word = Word(status);
    EXPECT_EQ(status.code(), word.empty() ? absl::StatusCode::kInvalidArgument
                                          : absl::StatusCode::kUnavailable);
  }
  EXPECT_EQ(word, gateway::kAsksTooOften);
  EXPECT_GE(asked, 500) << "a shelf of machines behind one address asks at once";
}

TEST_F(NodeTest, AnotherMachine_IsLetInOnlyWhereTheFirstIsGone_WhoseCertificateThenEnds) {
  StartGateway("--node-joins-within 2");
  ASSERT_EQ(Node("expect --serial s-1").code, 0);
  Identity first, second;
  ASSERT_TRUE(Enrol("s-1", "", nullptr, &first).ok());
  EXPECT_EQ(Word(Enrol("s-1", "")), gateway::kWaitingForApproval);
  EXPECT_TRUE(Log(first, "here").ok());
  // After so long it should have joined, and has not.
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  EXPECT_EQ(Word(Enrol("s-1", "")), gateway::kWaitingForApproval) << "one was expected, and came";
  ASSERT_EQ(Node("expect --serial s-1").code, 0);
  ASSERT_TRUE(Enrol("s-1", "", nullptr, &second).ok());
  EXPECT_TRUE(Eventually([&] { return absl::IsUnauthenticated(Log(first, "still here")); }));
  EXPECT_EQ(Word(EnrolKey(first->key, "s-1", "")), gateway::kCertificateRefused);
  EXPECT_TRUE(Log(second, "now here").ok());
  const Ended logs = Node("logs s-1");
  EXPECT_TRUE(logs.out.starts_with("here\n") && logs.out.ends_with("now here\n")) << logs.out;
}

TEST_F(NodeTest, ANodeThatWaits_IsListed_AndServesOnceApproved) {
  StartGateway();
  const tls::PrivateKey key = tls::PrivateKey::Generate().value();
  EXPECT_EQ(Word(EnrolKey(key, "s-1", "")), gateway::kWaitingForApproval);
  const Ended listed = Node("ls");
  EXPECT_NE(listed.out.find("s-1  waiting for approval since"), std::string::npos) << listed.out;
  EXPECT_NE(listed.out.find("52:54:00:12:34:56"), std::string::npos);
  EXPECT_EQ(Node("approve s-2").code, 1);
  EXPECT_EQ(Node("approve s-1").code, 0);
  EXPECT_EQ(Word(Enrol("s-1", "")), gateway::kWaitingForApproval);  // another key
  EXPECT_TRUE(EnrolKey(key, "s-1", "").ok());
  EXPECT_NE(Node("ls --json").out.find("\"state\": \"enrolled\""), std::string::npos);
}

TEST_F(NodeTest, ACertificateOfANode_IsNoFleetSecret) {
  StartGateway();
  Identity node;
  ASSERT_TRUE(Enrol("s-1", Claim("s-1"), nullptr, &node).ok());
  // Let in, and then it speaks no protocol.
  EXPECT_EQ(Join(node).code(), absl::StatusCode::kFailedPrecondition);
  // Whoever enrols as a worker needs the secret, and gets no node's name with it.
  proto::EnrolRequest request;
  request.set_certificate_request(tls::MakeRequest(tls::PrivateKey::Generate().value()).value());
  for (const std::string& name : {std::string("gpu-1"), std::string("node:s-1")}) {
    request.set_name(name);
    for (const bool has_secret : {false, true}) {
      grpc::ClientContext context;
      const std::string secret = Words(ReadFile(cluster_.data() + "/fleet.secret")).front();
      if (has_secret) context.AddMetadata("authorization", "Bearer " + secret);
      proto::EnrolReply reply;
      const absl::Status status = wire::FromGrpc(Fleet(node)->Enrol(&context, request, &reply));
      EXPECT_EQ(status.ok(), has_secret && name == "gpu-1") << name << has_secret << status;
    }
  }
  // A worker's certificate makes no node.
  const auto worker = std::make_shared<const tls::KeyAndChain>(
      authority_->Issue({.common_name = "outboard worker", .purpose = tls::Purpose::kWorker})
          .value());
  EXPECT_EQ(Log(worker, "x").code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Join(worker).code(), absl::StatusCode::kUnauthenticated);
}

TEST_F(NodeTest, ItsWorker_EnrolsByClaim_ServesAndIsBilled_AndEndsWhenRemoved) {
  StartGateway();
  const auto worker = cluster_.Start(WorkerArgs("s-1", Claim("s-1")));
  {
    auto session = Session::Connect(Options());
    ASSERT_TRUE(session.ok()) << session.status();
    EXPECT_TRUE(Step(**session).ok());
    EXPECT_TRUE((*session)->Close().ok());
  }
  const std::string usage = Outboard("usage --json --data " + cluster_.data()).out;
  EXPECT_NE(usage.find("\"amount_usd\": \"0."), std::string::npos) << usage;
  EXPECT_TRUE(Eventually([&] {
    return Node("logs s-1").out.starts_with("from the first second\n");
  })) << Node("logs s-1").err;
  // Started again, its claim is spent and its certificate good.
  EXPECT_EQ(worker->Stop(SIGINT), 0) << worker->err();
  const auto again = cluster_.Start(WorkerArgs("s-1", ""));
  {
    auto session = Session::Connect(Options());
    ASSERT_TRUE(session.ok()) << session.status();
    EXPECT_TRUE(Step(**session).ok());
    EXPECT_TRUE((*session)->Close().ok());
  }
  const auto removed_at = std::chrono::steady_clock::now();
  EXPECT_EQ(Node("rm s-1").code, 0);
  EXPECT_TRUE(Eventually([&] { return !IsAlive(again->pid()); }));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - removed_at;
  std::printf("a node that was removed ended after %.1f s\n", took.count());
  EXPECT_NE(again->Wait(), 0);
  EXPECT_NE(Node("ls").err.find("no machine"), std::string::npos) << Node("ls").out;
  // It made a key of its own for the next start, and waits under it.
  const Ended waits = RunToEnd([&] {
    std::vector<std::string> argv = {test::kOutboardProgram};
    for (std::string& word : Words(WorkerArgs("s-1", ""))) argv.push_back(std::move(word));
    std::filesystem::remove(cluster_.folder() / "node-s-1/claim");
    return argv;
  }());
  EXPECT_NE(waits.code, 0);
  EXPECT_NE(waits.err.find(gateway::kWaitingForApproval), std::string::npos) << waits.err;
}

// The test has the device to itself: an executor that waited for a session would be ended for it.
TEST_F(NodeTest, ItStartsNoExecutor_BeforeItsJoinTest) {
  StartGateway();
  const std::string ready = cluster_.folder() / "ready-of-node";
  std::vector<std::string> argv = {test::kOutboardProgram};
  for (std::string& word : Words(WorkerArgs("s-1", Claim("s-1")) + " --ready-file " + ready))
    argv.push_back(std::move(word));
  Process worker(std::move(argv), {});
  const auto has_executor = [&] {
    const std::vector<int> children = ChildrenOf(worker.pid());
    return std::any_of(children.begin(), children.end(), [](int child) {
      return CommandLineOf(child).find(" executor") != std::string::npos;
    });
  };
  bool is_early = false;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  for (bool is_tested = false; !is_tested && std::chrono::steady_clock::now() < until;) {
    const bool has = has_executor();  // before the log is read: then it was there before the end
    is_tested = worker.err().find("event=device_measured") != std::string::npos;
    is_early |= has && !is_tested;
  }
  EXPECT_FALSE(is_early);
  EXPECT_TRUE(Eventually([&] { return std::filesystem::exists(ready); })) << worker.err();
  EXPECT_TRUE(Eventually(has_executor)) << worker.err();
}

// As a rollout restarts a node: its session goes on elsewhere, and process 1 is told to start the
// machine again. Before, its join test has passed.
TEST_F(NodeTest, ARestart_HandsItsSessionOn_AndEndsTheWorkerForProcess1) {
  StartGateway();
  const auto first = cluster_.Start(WorkerArgs("s-1", Claim("s-1")));
  auto session = Session::Connect(Options());
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE(Step(**session).ok());
  const auto second = cluster_.Start(WorkerArgs("s-2", Claim("s-2")));
  EXPECT_TRUE(Eventually([&] {
    return Node("show s-2").out.find("join test    passed") != std::string::npos;
  })) << Node("show s-2").out;
  EXPECT_TRUE(std::filesystem::exists(cluster_.folder() / "node-s-1/joined"));
  EXPECT_NE(Node("show s-9").code, 0);
  EXPECT_NE(Node("reboot s-9").code, 0);
  EXPECT_EQ(Node("reboot s-1 --why test").code, 0);
  EXPECT_EQ(first->Wait(), worker::kExitRestartMachine) << first->err();
  EXPECT_TRUE(Step(**session).ok());
  EXPECT_TRUE((*session)->Close().ok());
  EXPECT_NE(cluster_.gateway().err().find("event=node_told node=s-1 order=restart"),
            std::string::npos)
      << cluster_.gateway().err();
}

TEST_F(NodeTest, InQuarantine_ItGetsNoSession_UntilItIsLifted) {
  StartGateway();
  const auto first = cluster_.Start(WorkerArgs("s-1", Claim("s-1")));
  const auto second = cluster_.Start(WorkerArgs("s-2", Claim("s-2")));
  const auto quarantine = [&](const std::string& what) {
    return Outboard("quarantine " + what + " --data " + cluster_.data());
  };
  for (const std::string serial : {"s-1", "s-2"}) {
    EXPECT_EQ(Node("quarantine " + serial + " --why test").code, 0);
    EXPECT_TRUE(Eventually(
        [&] { return quarantine("ls").out.find(serial) != std::string::npos; }));
  }
  // Both commands lift from the one list.
  EXPECT_NE(quarantine("lift s-3").code, 0);
  EXPECT_EQ(quarantine("lift s-1").code, 0);
  EXPECT_NE(Node("quarantine s-1 --lift").code, 0);
  EXPECT_EQ(Node("quarantine s-2 --lift").code, 0);
  EXPECT_EQ(quarantine("ls").out, "");
  auto session = Session::Connect(Options());
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE(Step(**session).ok());
}

TEST_F(NodeTest, ItsCertificate_IsRenewedAtTwoThirds_WithoutAClaim) {
  StartGateway("--worker-certificate-life 12");
  const auto worker = cluster_.Start(WorkerArgs("s-1", Claim("s-1")));
  const auto enrolled = [&] {
    size_t count = 0;
    const std::string log = cluster_.gateway().err();
    for (size_t at = 0; (at = log.find("event=node_enrolled", at)) != std::string::npos; ++at)
      ++count;
    return count;
  };
  EXPECT_TRUE(Eventually([&] { return enrolled() >= 3; })) << cluster_.gateway().err();
  EXPECT_NE(cluster_.gateway().err().find("proof=certificate"), std::string::npos);
  auto session = Session::Connect(Options());
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE(Step(**session).ok());
}

// As our image is: gRPC would make no connection without the system's.
TEST_F(NodeTest, OnAMachineWithoutRootCertificates_ItAsksAllTheSame) {
  StartGateway();
  const std::vector<std::string> boxed = {"/usr/bin/unshare", "--user", "--map-root-user",
                                          "--mount", "/bin/sh", "-c"};
  const auto run = [&](const std::string& line) {
    std::vector<std::string> argv = boxed;
    argv.push_back(line);
    return RunToEnd(std::move(argv));
  };
  const std::string hide =
      "for f in /etc/ssl /usr/share/grpc; do [ ! -d $f ] || mount -t tmpfs tmpfs $f || exit 99; "
      "done; ";
  if (run(hide + "exit 0").code != 0) GTEST_SKIP() << "no user namespaces are granted here";
  const Ended ended = run(hide + "exec " + test::kOutboardProgram + " " + WorkerArgs("s-1", ""));
  EXPECT_NE(ended.err.find(gateway::kWaitingForApproval), std::string::npos) << ended.err;
}

TEST_F(NodeTest, OfAnotherGateway_ItBelievesNothing) {
  StartGateway();
  std::string args = WorkerArgs("s-1", Claim("s-1"));
  args.replace(args.find(Fingerprint()), Fingerprint().size(), "sha256:" + std::string(64, 'a'));
  std::vector<std::string> argv = {test::kOutboardProgram};
  for (std::string& word : Words(args)) argv.push_back(std::move(word));
  const Ended ended = RunToEnd(argv);
  EXPECT_EQ(ended.code, 2) << ended.err;
  EXPECT_EQ(cluster_.gateway().err().find("node_enrolled"), std::string::npos);
}

}  // namespace
}  // namespace outboard::test
