// Where a secret must not be: a command line, the environment of a server or of what it starts, a
// log, an error, a core dump. And what a service manager is told.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "client/session/session.h"
#include "tests/support/cluster.h"
#include "tests/support/step.h"

namespace outboard {
namespace {

std::string FirstWord(const std::string& text) {
  std::istringstream stream(text);
  std::string word;
  stream >> word;
  return word;
}

// What any process of this machine, or this user's, can read of `pid`.
std::string ShownOf(int pid) {
  const std::string folder = "/proc/" + std::to_string(pid);
  return test::ReadFile(folder + "/cmdline") + test::ReadFile(folder + "/environ");
}

TEST(Secrets, AreInNoCommandLineEnvironmentOrLog) {
  test::Cluster cluster;
  const std::string given = "fleet-secret-of-the-test-0123456789";
  // `up` makes its own; a gateway and a worker are given theirs by a variable.
  cluster.StartUp(1, "--tls");
  const std::string made = FirstWord(test::ReadFile(cluster.data() + "/fleet.secret"));
  ASSERT_EQ(made.size(), 64u);
  const std::string with = "OUTBOARD_FLEET_SECRET=" + given;
  const test::TempFolder folder;
  const auto gateway =
      cluster.Start("gateway --listen 127.0.0.1:0 --tls --data " + (folder / "data"), {with});
  const std::string ca = folder / "data/tls/ca.pem";
  const auto worker =
      cluster.Start("worker --tls-ca " + ca + " --identity-file " + (folder / "identity") +
                        " --gateway " + cluster.fleet_target(),
                    {with});
  const std::string key = cluster.key();
  session::SessionOptions options = cluster.Options();
  options.protection = {.also_here = true};
  options.protection.trust.pinned =
      tls::Fingerprint::Parse("fingerprint",
                              FirstWord(test::ReadFile(cluster.data() + "/tls/fingerprint")))
          .value();
  auto session = Session::Connect(options);
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(test::Step(**session).ok());
  // A private key's text: the last line but one of a PEM file of ours.
  const std::string secrets[] = {given, made, key, "BEGIN PRIVATE KEY"};
  std::set<int> all;
  for (const test::Process* server : {&cluster.gateway(), gateway.get(), worker.get()}) {
    all.insert(server->pid());
    for (int pid : test::FamilyOf(server->pid())) all.insert(pid);
  }
  EXPECT_GE(all.size(), 5u);  // gateways, workers, executors
  for (const int pid : all)
    for (const std::string& secret : secrets)
      EXPECT_EQ(ShownOf(pid).find(secret), std::string::npos)
          << test::CommandLineOf(pid) << " shows " << secret;
  for (const test::Process* server : {&cluster.gateway(), gateway.get(), worker.get()})
    for (const std::string& secret : secrets)
      EXPECT_EQ((server->out() + server->err()).find(secret), std::string::npos) << secret;
}

TEST(Secrets, AreInNoError) {
  test::Cluster cluster;
  cluster.StartUp(1);
  const std::string key = cluster.key();
  const std::string at = " --gateway " + cluster.target(), data = " --data " + cluster.data();
  // A key that is wrong in its last letter, in a place where an id belongs, with a line break, too
  // long, and against nobody.
  const std::string wrong = key.substr(0, key.size() - 1) + (key.back() == 'A' ? "B" : "A");
  const struct {
    std::string args;
    std::string key;
  } cases[] = {
      {"usage" + at, wrong},
      {"usage" + at, key + "\nx"},
      {"usage" + at, key + std::string(100'000, 'x')},
      {"usage --gateway 127.0.0.1:1", key},
      {"store ls" + at, wrong},
      {"key revoke " + key + data, ""},
      {"usage --gateway " + key, key},
      {"cert revoke " + key + data, ""},
  };
  for (const auto& c : cases) {
    const test::Ended ended = test::Outboard(c.args, {"CLOUD_KEY=" + c.key});
    EXPECT_NE(ended.code, 0) << c.args.substr(0, 60);
    // All but the part that names it; what the user typed as an address may be told.
    if (c.args.find("--gateway ob_") != std::string::npos) continue;
    const std::string secret = key.substr(key.size() - 30);
    EXPECT_EQ((ended.out + ended.err).find(secret.substr(0, 29)), std::string::npos) << ended.err;
  }
  EXPECT_EQ(cluster.gateway().err().find(key.substr(key.size() - 30, 29)), std::string::npos);
  EXPECT_EQ(cluster.gateway().out().find(key.substr(key.size() - 30, 29)), std::string::npos);
}

TEST(Secrets, NoServerOrChildLeavesACoreDump) {
  test::Cluster cluster;
  cluster.StartUp(1);
  std::vector<int> all = test::FamilyOf(cluster.gateway().pid());
  all.push_back(cluster.gateway().pid());
  ASSERT_GE(all.size(), 3u);
  for (const int pid : all) {
    std::istringstream limits(test::ReadFile("/proc/" + std::to_string(pid) + "/limits"));
    bool found = false;
    for (std::string line; std::getline(limits, line);) {
      if (!line.starts_with("Max core file size")) continue;
      found = true;
      std::istringstream words(line.substr(18));
      std::string soft, hard;
      words >> soft >> hard;
      EXPECT_TRUE(soft == "0" || soft == "1") << line;  // 1: the kernel writes and pipes none
      EXPECT_TRUE(hard == "0" || hard == "1") << line;
    }
    EXPECT_TRUE(found || !test::IsAlive(pid));
  }
}

// sd_notify(3), by a socket as systemd has it.
TEST(ServiceManager, IsToldThatAServerIsReadyAliveAndStopping) {
  const test::TempFolder folder;
  const std::string path = folder / "notify";
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{.sun_family = AF_UNIX};
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  std::string told;
  const auto hears = [&](const std::string& what) {
    return test::Eventually([&] {
      char bytes[256];
      for (ssize_t count; (count = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0;)
        told += std::string(bytes, static_cast<size_t>(count)) + "\n";
      return told.find(what) != std::string::npos;
    });
  };
  test::Cluster cluster;
  const auto gateway = cluster.Start("gateway --listen 127.0.0.1:0 --data " + (folder / "data"),
                                     {"NOTIFY_SOCKET=" + path, "WATCHDOG_USEC=200000"});
  EXPECT_TRUE(hears("READY=1")) << told;
  EXPECT_TRUE(hears("WATCHDOG=1")) << told;
  told.clear();
  EXPECT_TRUE(hears("WATCHDOG=1")) << told;  // again
  gateway->Signal(SIGTERM);
  EXPECT_TRUE(hears("STOPPING=1")) << told;
  EXPECT_EQ(gateway->Wait(), 0);
  close(fd);
}

}  // namespace
}  // namespace outboard
