// deploy/systemd: units that systemd accepts, and that leave little to attack.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "tests/support/paths.h"
#include "tests/support/processes.h"

namespace outboard {
namespace {

constexpr char kAnalyze[] = "/usr/bin/systemd-analyze";
const std::string kUnits = test::SourceFile("deploy/systemd");

TEST(SystemdUnits, AreExposedAtMostThree) {
  if (access(kAnalyze, X_OK) != 0) GTEST_SKIP() << "no systemd-analyze here (apt install systemd)";
  int units = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kUnits)) {
    if (entry.path().extension() != ".service") continue;
    ++units;
    // The threshold is in tenths.
    const test::Ended rated = test::RunToEnd(
        {kAnalyze, "security", "--offline=true", "--threshold=30", entry.path().string()});
    EXPECT_EQ(rated.code, 0) << rated.out << rated.err;
    EXPECT_EQ(rated.err.find("ignoring"), std::string::npos) << rated.err;
    EXPECT_NE(rated.out.find("Overall exposure level"), std::string::npos) << rated.err;
    const std::string text = test::ReadFile(entry.path().string());
    for (const char* has :
         {"Type=notify", "DynamicUser=yes", "WatchdogSec=", "NoNewPrivileges=yes", "LimitCORE=0"})
      EXPECT_NE(text.find(has), std::string::npos) << entry.path() << ": " << has;
  }
  EXPECT_EQ(units, 3);
}

// What `RestrictNamespaces=` of a unit permits.
std::set<std::string> NamespacesOf(const std::string& unit) {
  constexpr char kSetting[] = "\nRestrictNamespaces=";
  const size_t at = unit.find(kSetting);
  if (at == std::string::npos) return {};
  const size_t from = at + sizeof kSetting - 1;
  std::istringstream words(unit.substr(from, unit.find('\n', from) - from));
  std::set<std::string> names;
  for (std::string word; words >> word;) names.insert(word);
  return names;
}

// Where a unit forbids a namespace, the worker counts its sandbox as incomplete and serves one
// account at a time.
TEST(SystemdUnits, NamespacesOfTheSandbox_ArePermitted) {
  // As systemd.exec(5) names them.
  const std::map<std::string, std::string> names = {
      {"CLONE_NEWUSER", "user"}, {"CLONE_NEWNS", "mnt"},        {"CLONE_NEWPID", "pid"},
      {"CLONE_NEWIPC", "ipc"},   {"CLONE_NEWUTS", "uts"},       {"CLONE_NEWNET", "net"},
      {"CLONE_NEWTIME", "time"}, {"CLONE_NEWCGROUP", "cgroup"},
  };
  std::set<std::string> asked;
  const std::string source =
      test::ReadFile(test::SourceFile("worker/sandbox/namespaces.cc"));
  const std::regex flag("CLONE_NEW[A-Z]+");
  for (std::sregex_iterator m(source.begin(), source.end(), flag), end; m != end; ++m) {
    ASSERT_TRUE(names.contains(m->str())) << m->str();
    asked.insert(names.at(m->str()));
  }
  EXPECT_GE(asked.size(), 7u);
  for (const char* unit : {"outboard-serve.service", "outboard-worker@.service"}) {
    const auto permitted = NamespacesOf(test::ReadFile(std::string(kUnits) + "/" + unit));
    for (const std::string& name : asked)
      EXPECT_TRUE(permitted.contains(name)) << unit << " does not permit: " << name;
  }
}

}  // namespace
}  // namespace outboard
