// The `outboard` program as a user has it: real processes, real executors, killed and stopped in
// the ways that happen.
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"
#include "client/session/link/private_serve.h"
#include "client/session/session.h"
#include "proto/store.grpc.pb.h"
#include "tests/support/cluster.h"
#include "tests/support/documented.h"
#include "tests/support/paths.h"
#include "tests/support/port_alone.h"
#include "wire/proof/head_file.h"

namespace outboard {
namespace {

using absl::StatusCode;
using session::SessionOptions;
using test::ChildrenOf;
using test::Eventually;
using test::IsAlive;
using test::Outboard;
using test::Step;

class ProcessesTest : public ::testing::Test {
 protected:
  // Without snapshots, since a session that can go on elsewhere is not told of what is killed.
  void StartUp(int workers) { cluster_.StartUp(workers, "--snapshot-every 0"); }
  int pid() { return cluster_.gateway().pid(); }
  int Stop(int signal) { return cluster_.gateway().Stop(signal); }

  test::Cluster cluster_;
};

TEST_F(ProcessesTest, UpRunsStepsBillsThemAndStops) {
  StartUp(2);
  auto first = Session::Connect(cluster_.Options());
  ASSERT_TRUE(first.ok()) << first.status();
  auto second = Session::Connect(cluster_.Options());
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_TRUE(Step(**first).ok()) << Step(**first);
  EXPECT_TRUE(Step(**second).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  ASSERT_TRUE((*first)->Close().ok());
  session::Stats stats = (*first)->stats();
  EXPECT_NEAR(stats.seconds_billed, stats.seconds_open, 1.0);
  test::Ended usage = Outboard("usage --json --data " + cluster_.data());
  EXPECT_EQ(usage.code, 0);
  EXPECT_NE(usage.out.find(absl::StrFormat("\"device_seconds\": %.3f", stats.seconds_billed)),
            std::string::npos)
      << usage.out;

  EXPECT_EQ(ChildrenOf(pid()).size(), 2u);
  std::vector<int> family = test::FamilyOf(pid());
  EXPECT_GE(family.size(), 4u);  // an executor each
  EXPECT_EQ(Stop(SIGINT), 0);
  EXPECT_EQ((*second)->status().code() == StatusCode::kOk ? Step(**second).code()
                                                          : (*second)->status().code(),
            StatusCode::kUnavailable);
  for (int pid : family) EXPECT_TRUE(Eventually([&] { return !IsAlive(pid); }, 5)) << pid;
}

TEST_F(ProcessesTest, UsageAsksWithAGoodKeyOnly) {
  StartUp(1);
  const std::string ask = "usage --gateway " + cluster_.target();
  EXPECT_EQ(Outboard(ask, {"CLOUD_KEY=" + cluster_.key()}).code, 0);
  const test::Ended none = Outboard(ask, {"CLOUD_KEY"});
  EXPECT_EQ(none.code, 2);
  EXPECT_NE(none.err.find("set CLOUD_KEY"), std::string::npos) << none.err;
  EXPECT_EQ(Outboard(ask, {"CLOUD_KEY=ob_live_wrong"}).code, 2);
  const test::Ended broken = Outboard(ask, {"CLOUD_KEY=" + cluster_.key() + "\n"});
  EXPECT_EQ(broken.code, 2);
  EXPECT_EQ(broken.err.find(cluster_.key()), std::string::npos) << broken.err;
}

// A key's own sessions, from the gateway and from the books alike.
TEST_F(ProcessesTest, UsageListsASessionUnderASecond) {
  StartUp(1);
  const std::string books = "usage --data " + cluster_.data(),
                    ask = "usage --gateway " + cluster_.target();
  const std::vector<std::string> with_key = {"CLOUD_KEY=" + cluster_.key()};
  const std::string none = Outboard(books).out;
  const auto began = std::chrono::steady_clock::now();
  {
    auto session = Session::Connect(cluster_.Options());
    ASSERT_TRUE(session.ok()) << session.status();
    EXPECT_TRUE(Step(**session).ok());
    const test::Ended open = Outboard(ask, with_key);
    EXPECT_NE(open.out.find("  open\n"), std::string::npos) << open.out;
    ASSERT_TRUE((*session)->Close().ok());
  }
  const std::chrono::duration<double> most = std::chrono::steady_clock::now() - began;
  const test::Ended ended = Outboard(ask, with_key);
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(Outboard(books).out, ended.out);
  EXPECT_EQ(Outboard(books + " --json").out, Outboard(ask + " --json", with_key).out);
  // Held for no less than is charged, however busy the machine is: not "at least so much".
  EXPECT_EQ(ended.out.find(">="), std::string::npos) << ended.out;
  std::istringstream lines(ended.out.substr(ended.out.find('\n') + 1));
  std::string id, date, total;
  double used_s = -1, charged_s = -1, total_s = -1;
  int devices = 0;
  lines >> id >> date >> used_s >> devices >> charged_s >> total >> total >> total_s;
  EXPECT_EQ(id.size(), 32u) << ended.out;
  EXPECT_GT(used_s, 0) << ended.out;
  EXPECT_LE(used_s, most.count()) << ended.out;
  EXPECT_EQ(devices, 1) << ended.out;
  EXPECT_LE(charged_s, used_s) << ended.out;
  EXPECT_EQ(total_s, charged_s) << ended.out;

  for (const char* since : {" --since 2099-01-31", " --since 2099-01-31T12:00:00Z"}) {
    EXPECT_EQ(Outboard(books + since).out, none);
    EXPECT_EQ(Outboard(ask + since, with_key).out, none);
  }
  EXPECT_EQ(Outboard(books + " --since 2020-01-31T12:00:00+02:00").out, ended.out);
  EXPECT_EQ(Outboard(ask + " --since 2020-01-31", with_key).out, ended.out);

  const test::Ended other = Outboard("key create --account other --data " + cluster_.data());
  const std::string key = other.out.substr(0, other.out.find('\n'));
  EXPECT_EQ(Outboard(ask, {"CLOUD_KEY=" + key}).out, none);
}

// What `ps` and `stop` were shown is kept, and the gateway's books must have it.
TEST_F(ProcessesTest, PsAndStopKeepTheHeadsThatTheySaw) {
  StartUp(1);
  SessionOptions options = cluster_.Options();
  options.name = "run7";
  auto session = Session::Connect(options);
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE(Step(**session).ok());
  const std::string file = cluster_.folder() / "heads", at = " --gateway " + cluster_.target();
  const std::vector<std::string> environment = {"CLOUD_KEY=" + cluster_.key(),
                                                "CLOUD_HEADS=" + file};
  const auto seen = [&] { return signing::HeadFile(file).Read()->heads; };
  const test::Ended ps = Outboard("ps --json" + at, environment);
  EXPECT_EQ(ps.code, 0) << ps.err;
  EXPECT_NE(ps.out.find("\"name\": \"run7\""), std::string::npos) << ps.out;
  ASSERT_EQ(seen().size(), 1u);
  EXPECT_EQ(seen()[0].target, cluster_.target());
  const test::Ended stop = Outboard("stop run7" + at, environment);
  EXPECT_EQ(stop.code, 0) << stop.err;
  ASSERT_EQ(seen().size(), 2u);
  EXPECT_GE(seen()[1].head.entries(), seen()[0].head.entries());
  const test::Ended verified = Outboard("invoice --verify" + at, environment);
  EXPECT_EQ(verified.code, 0) << verified.err;
  EXPECT_NE(verified.out.find("2 heads"), std::string::npos) << verified.out;
}

TEST_F(ProcessesTest, AnInterruptedServeLeavesNothing) {
  const std::string listen = "unix:" + cluster_.folder() / "s";
  auto serve = cluster_.Start("serve --no-auth --ephemeral --listen " + listen);
  SessionOptions options;
  options.target = listen;
  auto session = Session::Connect(options);
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE(Step(**session).ok());
  const std::vector<int> family = test::FamilyOf(serve->pid());
  EXPECT_FALSE(family.empty());
  EXPECT_EQ(serve->Stop(SIGINT), 0);
  EXPECT_EQ(serve->err(), "");
  for (int pid : family) EXPECT_TRUE(Eventually([&] { return !IsAlive(pid); })) << pid;
}

TEST_F(ProcessesTest, ChildrenEndWithAParentThatIsKilled) {
  StartUp(1);
  auto session = Session::Connect(cluster_.Options());
  ASSERT_TRUE(session.ok()) << session.status();
  std::vector<int> family = test::FamilyOf(pid());
  ASSERT_GE(family.size(), 2u);
  Stop(SIGKILL);
  for (int pid : family) EXPECT_TRUE(Eventually([&] { return !IsAlive(pid); }, 10)) << pid;
}

TEST_F(ProcessesTest, AKilledWorkerIsSaidSoAndStartedAgain) {
  StartUp(1);
  auto session = Session::Connect(cluster_.Options());
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(Step(**session).ok());
  ASSERT_EQ(ChildrenOf(pid()).size(), 1u);
  kill(ChildrenOf(pid())[0], SIGKILL);
  absl::Status status;
  ASSERT_TRUE(Eventually([&] { return !(status = Step(**session)).ok(); }));
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(std::string(status.message()).find("worker lost"), std::string::npos) << status;
  auto again = cluster_.Connect();
  ASSERT_NE(again, nullptr);
  EXPECT_TRUE(Step(*again).ok());
}

TEST_F(ProcessesTest, APrivateServeLivesAsLongAsItsSessions) {
  setenv("OUTBOARD_BIN", test::kOutboardProgram, 1);
  unsetenv("CLOUD");
  test::TempFolder folder;
  setenv("TMPDIR", folder.path().c_str(), 1);
  std::vector<int> before = ChildrenOf(getpid());
  std::vector<int> family;
  {
    auto session = Session::Connect(*SessionOptions::FromEnvironment());
    ASSERT_TRUE(session.ok()) << session.status();
    EXPECT_TRUE(Step(**session).ok());
    auto another = Session::Connect(*SessionOptions::FromEnvironment());
    ASSERT_TRUE(another.ok()) << another.status();
    EXPECT_TRUE(Step(**another).ok());
    EXPECT_EQ(ChildrenOf(getpid()).size(), before.size() + 1);  // shared
    family = ChildrenOf(getpid());
    EXPECT_FALSE(std::filesystem::is_empty(folder.path()));
  }
  EXPECT_EQ(ChildrenOf(getpid()).size(), before.size());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  {
    auto session = Session::Connect(*SessionOptions::FromEnvironment());
    ASSERT_TRUE(session.ok()) << session.status();
    for (int pid : test::DescendantsNamed(getpid(), " serve ")) kill(pid, SIGKILL);
    absl::Status status;
    EXPECT_TRUE(Eventually([&] { return !(status = Step(**session)).ok(); }));
    test::ExpectAsDocumented("The private worker ends", status);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  unsetenv("TMPDIR");
  setenv("OUTBOARD_BIN", "/nowhere/outboard", 1);
  absl::Status none = Session::Connect(*SessionOptions::FromEnvironment()).status();
  EXPECT_EQ(none.code(), StatusCode::kUnavailable);
  EXPECT_NE(std::string(none.message()).find("OUTBOARD_BIN names \"/nowhere/outboard\""),
            std::string::npos)
      << none;
  setenv("OUTBOARD_BIN", folder.path().c_str(), 1);  // a folder, which may be executed as it is
  none = Session::Connect(*SessionOptions::FromEnvironment()).status();
  EXPECT_NE(std::string(none.message()).find("no program that can be run"), std::string::npos)
      << none;
  unsetenv("OUTBOARD_BIN");
}

TEST_F(ProcessesTest, UpListensWhereItIsTold) {
  const auto up = cluster_.Start("up --listen 127.0.0.1:0 --no-auth --data " + cluster_.data());
  EXPECT_TRUE(cluster_.last_address().starts_with("127.0.0.1:")) << cluster_.last_address();
  EXPECT_FALSE(cluster_.last_address().ends_with(":0")) << cluster_.last_address();
}

TEST_F(ProcessesTest, ExitCodes) {
  const std::string folder = cluster_.data();
  struct Case {
    std::string args;
    int code;
  } cases[] = {
      {"--version", 0},
      {"--help", 0},
      {"", 2},
      {"frob", 2},
      {"up --workers 0", 2},
      {"up --listen localhost", 2},
      {"up --port 65536", 2},
      {"worker --gateway localhost:1 --quiet", 2},
      {"worker --gateway localhost --quiet", 2},
      {"gateway --listen localhost --data " + folder, 2},
      {"usage --gateway http://localhost:1", 2},
      {"usage --gateway localhost:1", 2},
      {"usage --data " + folder + "/none", 2},
      {"usage --since yesterday", 2},
      {"usage --since infinite-future", 2},
      {"usage --since 1969-12-31", 2},
      {"key ls --data " + folder, 2},  // no accounts; none are made
      {"key revoke 0000000000000000 --data " + folder, 2},
      {"key create --data " + folder + " --json", 0},
      {"key ls --data " + folder, 0},
      {"key create --scope run,all --data " + folder, 2},
      {"key create --expires 0d --data " + folder, 2},
      {"key create --from 10.0.0.5/8 --data " + folder, 2},
      {"account suspend default --data " + folder, 0},
      {"account resume default --data " + folder, 0},
      {"account suspend nobody --data " + folder, 1},
      {"account create friend --credit-limit 0 --data " + folder, 0},
      {"account create friend --data " + folder, 1},  // is there already
      {"account credit-limit friend -1 --data " + folder, 2},
      {"account credit-limit friend default --data " + folder, 0},
      {"account show friend --json --data " + folder, 0},
      {"account show nobody --data " + folder, 1},
      {"credit add 20 --account friend --id a --data " + folder, 0},
      {"credit add 20 --account friend --id a --json --data " + folder, 0},  // again: nothing
      {"credit add 20 --tenant friend --id a --data " + folder, 0},          // the same account
      {"credit add 20 --account friend --tenant friend --id a --data " + folder, 2},
      {"credit add 21 --account friend --id a --data " + folder, 1},
      {"credit add 0 --account friend --id b --data " + folder, 2},
      {"credit add 9223372036854775808 --account friend --id b --data " + folder, 2},
      {"credit add 9223372036854.775808 --account friend --id b --data " + folder, 2},
      {"credit add 1.0000001 --account friend --id b --data " + folder, 2},
      {"credit add 1 --account nobody --id b --data " + folder, 1},
      {"cap set 5 --account friend --data " + folder, 0},
      {"cap set none --account friend --json --data " + folder, 0},
      {"cap set 0 --account friend --data " + folder, 2},
      {"cap set 5 --key 0000000000000000 --data " + folder, 1},
      {"gateway --credit-limit some --data " + folder, 2},
      {"gateway --no-auth --listen 0.0.0.0:0 --data " + folder, 2},
      {"serve --ephemeral --data " + folder, 2},  // would remove the accounts of a real one
      {"serve --no-auth --ephemeral --listen unix:" + folder + "/s --data " + folder, 2},
      {"key revoke 0000000000000000 --data " + folder, 1},
      {"key ls --data " + folder, 0},
  };
  for (const Case& c : cases) {
    const test::Ended ended = Outboard(c.args);
    EXPECT_EQ(ended.code, c.code) << c.args << "\n" << ended.err;
    if (c.code == 0) continue;
    // One line, from us.
    EXPECT_TRUE(ended.err.starts_with("outboard: ")) << ended.err;
    EXPECT_EQ(ended.err.find('\n'), ended.err.size() - 1) << ended.err;
    EXPECT_EQ(ended.out, "");
  }
  for (const char* wrong :
       {"frob", "", "up --workers 0", "up --nosuch", "worker", "key", "up --session-memory 12XB",
        "serve --devices x", "up --quota -1", "up --session-memory -5GB"}) {
    test::ExpectAsDocumented("Wrong arguments of a program of ours", Outboard(wrong).err);
  }
}

// Every command on an account says which accounts there are, and invoice, which means "default"
// where it is told nothing, that one can be named.
TEST(Accounts, OneThatIsNotThere_NamesThoseThatAre) {
  const test::TempFolder temporary;
  const std::string at = " --data " + temporary.path();
  for (const char* name : {"lab", "friend"})
    ASSERT_EQ(Outboard(std::string("account create ") + name + at).code, 0) << name;
  for (const char* command :
       {"invoice", "invoice --verify --account nobody", "credit add 1 --id a", "cap set 1",
        "account show nobody", "account suspend nobody", "account resume nobody",
        "account share-tuning nobody on", "account credit-limit nobody 1"}) {
    const test::Ended ended = Outboard(command + at);
    EXPECT_EQ(ended.code, 1) << command;
    EXPECT_NE(ended.err.find("lab, friend"), std::string::npos) << command << ": " << ended.err;
    EXPECT_EQ(ended.err.find("tenant"), std::string::npos) << ended.err;
    EXPECT_EQ(ended.err.find('\n'), ended.err.size() - 1) << ended.err;
    const bool unnamed = std::string_view(command).find("nobody") == std::string_view::npos;
    EXPECT_EQ(ended.err.find("--account NAME") != std::string::npos, unnamed) << ended.err;
  }
  // As of any other thing that a command names.
  for (const char* command : {"key revoke 0123456789abcdef", "cap set 1 --key 0123456789abcdef",
                              "quarantine lift nobody"}) {
    const test::Ended ended = Outboard(command + at);
    EXPECT_EQ(ended.code, 1) << command << ": " << ended.err;
  }
  // What they print says account, too, as --by does.
  for (const char* command :
       {"account show lab --json", "credit add 1 --id a --account lab --json",
        "cap set 5 --account lab --json", "key create --account lab --json"}) {
    const test::Ended ended = Outboard(command + at);
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_NE(ended.out.find("\"account\": \"lab\""), std::string::npos) << ended.out;
    EXPECT_EQ(ended.out.find("tenant"), std::string::npos) << ended.out;
  }
}

TEST(Compiler, OneThatIsNotThereIsSaidAtTheStart) {
  const test::TempFolder folder;
  const std::string copy = folder.path() + "/outboard";
  std::filesystem::copy_file(test::kOutboardProgram, copy);
  for (const char* command : {"serve", "up --port 0", "worker --gateway 127.0.0.1:1"}) {
    std::vector<std::string> argv = {copy};
    for (std::string& word : test::Words(command)) argv.push_back(std::move(word));
    const test::Ended ended = test::RunToEnd(std::move(argv), {});
    EXPECT_EQ(ended.code, 2) << ended.err;
    EXPECT_NE(ended.err.find("outboard-compiler is not there"), std::string::npos) << ended.err;
  }
}

TEST(Help, FitsAScreenAndLeavesNothingOut) {
  for (const std::string command :
       {"",           "up",       "gateway",    "worker",   "serve",           "key",
        "key create", "key ls", "key revoke", "account",  "account suspend", "usage",
        "credit add", "cap set",  "account show", "account create", "invoice", "audit", "archive",
        "push",       "pull",     "store",      "store ls", "store rm",        "store pin",
        "store du",   "cache",    "trace",      "viz"}) {
    const test::Ended ended = Outboard(command + " --help");
    EXPECT_EQ(ended.code, 0) << command;
    std::istringstream lines(ended.out);
    bool needs_text = false;  // of an option that filled its line
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), 80u) << line;
      EXPECT_FALSE(needs_text && !line.starts_with("      ")) << "no text before: " << line;
      const size_t name_end = line.starts_with("  -") ? line.find("  ", 2) : 0;
      needs_text = name_end == std::string::npos;
    }
    EXPECT_FALSE(needs_text) << ended.out;
  }
}

// Every subcommand that lists is `ls`; `list` does the same and is in no help.
TEST(Help, ListingsAreCalledLs) {
  std::set<std::string> listings;
  std::istringstream commands(Outboard("--help").out);
  for (std::string line; std::getline(commands, line);) {
    if (!line.starts_with("  ") || line.starts_with("  -") || line[2] == ' ') continue;
    const std::string command = line.substr(2, line.find(' ', 2) - 2);
    const std::string help = Outboard(command + " --help").out;
    EXPECT_EQ(help.find("\n  list"), std::string::npos) << help;
    if (help.find("\n  ls ") != std::string::npos) listings.insert(command);
  }
  EXPECT_EQ(listings,
            (std::set<std::string>{"account", "cache", "device", "image", "key", "metrics", "node",
                                   "quarantine", "store", "sweep"}));
  for (const std::string& command : listings) {
    const test::Ended list = Outboard(command + " list --help");
    EXPECT_EQ(list.code, 0) << command;
    EXPECT_EQ(list.out, Outboard(command + " ls --help").out) << command;
  }
}

// An option for an account is --account; --tenant does the same and is in no help.
TEST(Help, AccountsAreCalledAccount) {
  for (const std::string command :
       {"key create", "credit add 1 --id a", "cap set 1", "invoice"}) {
    const std::string help = Outboard(command + " --help").out;
    EXPECT_NE(help.find("\n  --account TEXT "), std::string::npos) << help;
    EXPECT_EQ(help.find("tenant"), std::string::npos) << help;
    const test::Ended both = Outboard(command + " --account a --tenant b");
    EXPECT_EQ(both.code, 2) << command;
    EXPECT_NE(both.err.find("give one"), std::string::npos) << both.err;
  }
}

TEST(Help, OfTheCompiler) {
  const std::string compiler = std::string(test::kOutboardProgram) + "-compiler";
  const test::Ended help = test::RunToEnd({compiler, "--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_TRUE(help.out.starts_with("Usage: outboard-compiler\n")) << help.out;
  EXPECT_EQ(help.err, "");
  std::istringstream lines(help.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  const test::Ended wrong = test::RunToEnd({compiler, "--nosuch"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_EQ(wrong.err,
            "outboard-compiler: it takes no arguments; see `outboard-compiler --help`\n");
}

// `key create` may be asked for another folder than the running gateway's: it says which.
TEST_F(ProcessesTest, KeysSayWhoseTheyAre) {
  const std::string books = cluster_.data();
  const test::Ended made = Outboard("key create --data " + books);
  EXPECT_NE(made.err.find(books + " has no accounts yet; making them"), std::string::npos);
  EXPECT_NE(made.err.find(" of default in " + books), std::string::npos) << made.err;
  EXPECT_EQ(made.out.find('\n'), made.out.size() - 1) << made.out;
  const test::Ended list = Outboard("key ls", {"OUTBOARD_DATA=" + books});
  EXPECT_EQ(list.err, "outboard: the keys in " + books + "\n");
}

// A server that speaks HTTP/2 and has no method of ours.
TEST_F(ProcessesTest, WhatIsNoGatewayIsSaidSo) {
  grpc::ServerBuilder builder;
  proto::Store::Service empty;
  builder.RegisterService(&empty);
  int port = 0;
  test::HaveAPortAlone(builder);
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  const std::string address = "127.0.0.1:" + std::to_string(port);
  const std::string row = "Something else answers there";
  for (const char* command : {"usage", "store ls", "store du"}) {
    const test::Ended ended = Outboard(std::string(command) + " --gateway " + address);
    EXPECT_EQ(ended.code, 1) << command;
    test::ExpectAsDocumented(row, "UNIMPLEMENTED: " + ended.err.substr(ended.err.find(' ') + 1));
  }
  SessionOptions options;
  options.target = address;
  test::ExpectAsDocumented(row, Session::Connect(options).status());
  const test::TempFolder folder;
  test::Process worker({test::kOutboardProgram, "worker", "--gateway", address, "--identity-file",
                        folder / "identity"},
                       {"OUTBOARD_FLEET_SECRET=x"});
  EXPECT_TRUE(Eventually([&] {
    const std::string err = worker.err();
    return err.find("event=not_joined") != std::string::npos &&
           err.find("what answers is no gateway") != std::string::npos;
  })) << worker.err();
  EXPECT_EQ(worker.Stop(SIGINT), 0);
  server->Shutdown();
}

// gRPC does not say why it cannot listen.
TEST_F(ProcessesTest, AnAddressThatCannotBeListenedAt) {
  StartUp(1);
  for (const auto& [address, why] :
       {std::pair<std::string, std::string>{"no-such-host.invalid:6667", "there is no such host"},
        {"203.0.113.5:6667", "that is no address of this machine"},
        {cluster_.last_address(), "the port is in use; is another gateway running there?"}}) {
    for (const std::string& listen :
         {" --listen " + address, " --listen 127.0.0.1:0 --fleet-listen " + address}) {
      const test::Ended ended = Outboard("gateway --data " + cluster_.data() + "/another" + listen);
      EXPECT_EQ(ended.code, 2) << ended.err;
      EXPECT_NE(ended.err.find(why), std::string::npos) << ended.err;
    }
  }
}

// Two would write the same books.
TEST_F(ProcessesTest, OneGatewayPerDataFolder) {
  StartUp(1);
  for (const std::string command : {"gateway --listen 127.0.0.1:0", "serve --listen 127.0.0.1:0"}) {
    const test::Ended ended = Outboard(command + " --data " + cluster_.data());
    EXPECT_EQ(ended.code, 2) << command;
    test::ExpectAsDocumented("Another gateway has the data folder", ended.err);
    EXPECT_NE(ended.err.find("another gateway serves the data folder " + cluster_.data() +
                             ": process " + std::to_string(cluster_.gateway().pid()) + ", since 2"),
              std::string::npos)
        << ended.err;
  }
  cluster_.gateway().Stop(SIGKILL);  // a lock does not outlive its holder
  StartUp(1);
}

// Its own worker was taken for a stranger, and the command ended after 20 s.
TEST_F(ProcessesTest, AnOwnBoxMayListenToTheNetwork) {
  const auto serve = cluster_.Start("serve --listen 0.0.0.0:0 --data " + cluster_.folder() / "box");
  EXPECT_TRUE(cluster_.last_address().starts_with("0.0.0.0:"));
  EXPECT_EQ(std::filesystem::status(cluster_.folder() / "box").permissions(),
            std::filesystem::perms::owner_all);
}

TEST_F(ProcessesTest, AWorkerNeedsTheSecretOfItsGateway) {
  cluster_.StartGateway();
  const std::string secret = cluster_.data() + "/fleet.secret";
  EXPECT_EQ(std::filesystem::status(secret).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  const std::string join = "worker --quiet --gateway " + cluster_.fleet_target() +
                           " --identity-file " + cluster_.folder() / "identity";
  const std::string nobody = "OUTBOARD_DATA=" + cluster_.folder() / "empty";
  const std::string row = "A worker has no fleet secret, or a wrong one";
  const auto expect = [&](const test::Ended& ended, const std::string& why) {
    EXPECT_EQ(ended.code, 2) << ended.err;
    if (!why.ends_with("read")) test::ExpectAsDocumented(row, ended.err);
    EXPECT_NE(ended.err.find(why), std::string::npos) << ended.err;
  };
  expect(Outboard(join, {nobody}), "a worker needs the fleet secret of its gateway");
  expect(Outboard(join, {"OUTBOARD_FLEET_SECRET=guessed"}), "wrong fleet secret");
  expect(Outboard(join + " --fleet-secret-file " + cluster_.folder() / "none", {nobody}),
         "--fleet-secret-file: cannot read");
  std::filesystem::copy_file(secret, cluster_.folder() / "open");
  chmod((cluster_.folder() / "open").c_str(), 0644);
  expect(Outboard(join + " --fleet-secret-file " + cluster_.folder() / "open", {nobody}),
         "other users can read");
  // The gateway's own user on its own machine needs no flag; the address of clients is not that of
  // workers.
  const std::string owner = "OUTBOARD_DATA=" + cluster_.data();
  expect(Outboard("worker --quiet --gateway " + cluster_.target(), {owner}),
         "workers join at the gateway's --fleet-listen");
  cluster_.Start("worker --quiet --gateway " + cluster_.fleet_target(), {owner});
}

// A name that is no device is said before anything starts, with those that there are.
TEST(Device, OneThatIsNotThereEndsWithTheList) {
  for (const std::string command :
       {"serve --listen 127.0.0.1:0", "worker --gateway 127.0.0.1:1", "up --port 0"}) {
    const test::Ended ended = Outboard(command, {"OUTBOARD_DEVICE=toaster"});
    EXPECT_EQ(ended.code, 2) << command << ": " << ended.err;
    EXPECT_NE(ended.err.find("no device \"toaster\"; there are: cpu, far"), std::string::npos)
        << command << ": " << ended.err;
  }
}

// Of two places neither is left out in silence.
TEST(Listen, OlderFlagsBesideIt_AreRefused) {
  for (const std::string older : {"--port 0", "--host 127.0.0.1"}) {
    const test::Ended ended = Outboard("up --listen 127.0.0.1:0 " + older);
    EXPECT_EQ(ended.code, 2) << ended.err;
    EXPECT_NE(ended.err.find("what --listen says"), std::string::npos) << ended.err;
  }
}

}  // namespace
}  // namespace outboard
