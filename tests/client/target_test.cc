// What a user may write into CLOUD, CLOUD_HOST and CLOUD_KEY, and what is said about the rest.
#include <gtest/gtest.h>
#include <stdlib.h>

#include "client/session/address.h"
#include "client/session/remote/console.h"
#include "client/session/session.h"
#include "tests/support/documented.h"

namespace outboard::session {
namespace {

using absl::StatusCode;

TEST(Target, Spellings) {
  struct Case {
    std::string target;
    std::string wrong;  // a word of the message; empty: it is right
  } cases[] = {
      {"localhost:6667", ""},
      {"127.0.0.1:1", ""},
      {"[::1]:6667", ""},
      {"box.example:65535", ""},
      {"unix:/tmp/s", ""},
      {"", "HOST:PORT"},
      {"box", "did you mean box:6667?"},
      {"box:", "1 to 65535"},
      {"box:0", "1 to 65535"},
      {"box:65536", "1 to 65535"},
      {"box:http", "1 to 65535"},
      {"box:-1", "1 to 65535"},
      {":6667", "no host"},
      {"[]:80", "no host"},
      {"a]b:80", "brackets stand around"},
      {"a[b]:80", "brackets stand around"},
      {"[[::1]:80", "brackets stand around"},
      {"[[::1]]:80", "brackets stand around"},
      {"[::1]:80:81", "1 to 65535"},
      {"http://box:6667", "without a scheme"},
      {"box:6667/", "without a scheme or a path"},
      {"::1:6667", "brackets"},
      {"::1", "brackets"},
      {"[::1]", "did you mean [::1]:6667?"},
      {"[::1:6667", "]"},
      {"[::1]x:6667", "right behind the ]"},
      {"unix:", "path"},
      {"box :6667", "space"},
      {"box:6667\n", "space"},
      {std::string("b\xc3\xb6x:1"), "ASCII"},
      {std::string(600, 'x') + ":1", "512"},
  };
  for (const Case& c : cases) {
    const absl::Status status = CheckTarget("CLOUD_HOST", c.target);
    EXPECT_EQ(status.ok(), c.wrong.empty()) << c.target << " " << status;
    if (c.wrong.empty()) continue;
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(status.message()).find(c.wrong), std::string::npos) << status;
    EXPECT_NE(std::string(status.message()).find("CLOUD_HOST"), std::string::npos) << status;
    EXPECT_EQ(std::string(status.message()).find('\n'), std::string::npos) << status;
  }
  EXPECT_TRUE(CheckTarget("--listen", "box:0", /*lowest_port=*/0).ok());
}

// The environment of the tests is changed and put back.
class EnvironmentTest : public ::testing::Test {
 protected:
  static absl::StatusOr<SessionOptions> With(const char* cloud, const char* host, const char* key) {
    const std::pair<const char*, const char*> variables[] = {
        {"CLOUD", cloud}, {"CLOUD_HOST", host}, {"CLOUD_KEY", key}};
    for (const auto& [name, value] : variables) {
      if (value == nullptr)
        unsetenv(name);
      else
        setenv(name, value, 1);
    }
    auto options = SessionOptions::FromEnvironment();
    for (const auto& [name, value] : variables) unsetenv(name);
    return options;
  }
};

TEST_F(EnvironmentTest, CloudIsOneOrZero) {
  for (const char* off : {static_cast<const char*>(nullptr), "", "0"})
    EXPECT_EQ(With(off, "box:1", "k")->target, "") << (off == nullptr ? "unset" : off);
  EXPECT_EQ(With("1", "box:1", "k")->target, "box:1");
  EXPECT_EQ(With("1", "box:1", "k")->key, "k");
  EXPECT_EQ(With("1", nullptr, nullptr)->target, "localhost:6667");
  for (const char* odd : {"yes", "true", "no", "2", " 1", "on\n"})
    test::ExpectAsDocumented("`CLOUD=yes`", With(odd, "box:1", "k").status());
}

TEST_F(EnvironmentTest, DebugIsANumber) {
  unsetenv("DEBUG");
  EXPECT_FALSE(With("0", nullptr, nullptr)->debug);
  for (const auto& [text, on] : {std::pair{"0", false}, {"1", true}, {"2", true}, {"", false}}) {
    setenv("DEBUG", text, 1);
    EXPECT_EQ(With("1", nullptr, nullptr)->debug, on) << text;
  }
  unsetenv("DEBUG");
}

TEST_F(EnvironmentTest, DevicesAreANumber) {
  unsetenv("CLOUD_DEVICES");
  EXPECT_EQ(With("1", nullptr, nullptr)->devices, std::nullopt);
  for (const char* cloud : {"0", "1"}) {  // a private worker's, too
    setenv("CLOUD_DEVICES", "8", 1);
    EXPECT_EQ(With(cloud, nullptr, nullptr)->devices, 8u);
    for (const char* odd : {"0", "65", "-1", "two", "2.5", "2 devices", "99999999999999999999"}) {
      setenv("CLOUD_DEVICES", odd, 1);
      const absl::Status status = With(cloud, nullptr, nullptr).status();
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << odd;
      EXPECT_NE(status.message().find(odd), std::string::npos) << status;
      test::ExpectAsDocumented("No devices, or more than a session can have", status);
    }
  }
  unsetenv("CLOUD_DEVICES");
}

TEST(Devices, AMeshHasAPlaceForEach) {
  SessionOptions options{.devices = 6};
  for (const std::vector<uint32_t>& right : {std::vector<uint32_t>{}, {6}, {2, 3}, {1, 6, 1}}) {
    options.mesh = right;
    EXPECT_TRUE(options.CheckDevices().ok()) << options.CheckDevices();
  }
  for (const std::vector<uint32_t>& wrong :
       {std::vector<uint32_t>{5}, {2, 2}, {0}, {0xffffffff, 0xffffffff}}) {
    options.mesh = wrong;
    EXPECT_EQ(options.CheckDevices().code(), StatusCode::kInvalidArgument);
    test::ExpectAsDocumented("A mesh that is not of the session's devices",
                             options.CheckDevices());
  }
  options.mesh = {1, 1, 2, 1, 3};
  EXPECT_EQ(options.CheckDevices().code(), StatusCode::kInvalidArgument) << "of too many axes";
}

TEST_F(EnvironmentTest, WaitsAreSeconds) {
  unsetenv("CLOUD_QUEUE_S");
  EXPECT_EQ(With("1", nullptr, nullptr)->queue_timeout, std::nullopt);
  for (const auto& [text, ms] : {std::pair{"0", 0}, {"60", 60'000}, {"0.25", 250},
                                 {"1000000", 1'000'000'000}}) {
    setenv("CLOUD_QUEUE_S", text, 1);
    const auto options = With("1", nullptr, nullptr);
    ASSERT_TRUE(options.ok()) << options.status();
    EXPECT_EQ(options->queue_timeout, std::chrono::milliseconds(ms)) << text;
    EXPECT_EQ(With("0", nullptr, nullptr)->queue_timeout, std::nullopt);  // of a cloud alone
  }
  for (const char* odd : {"-1", "1000001", "nan", "inf", "soon", "5 s", "1e99", " "}) {
    setenv("CLOUD_QUEUE_S", odd, 1);
    const absl::Status status = With("1", nullptr, nullptr).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << odd;
    EXPECT_NE(status.message().find("CLOUD_QUEUE_S"), std::string::npos) << status;
  }
  unsetenv("CLOUD_QUEUE_S");
}

TEST_F(EnvironmentTest, GangsHaveANameAndASize) {
  unsetenv("CLOUD_GANG");
  EXPECT_EQ(With("1", nullptr, nullptr)->gang, "");
  const struct {
    const char *text, *gang;
    uint32_t size;
  } right[] = {{"sweep7:8", "sweep7", 8}, {"a:b:2", "a:b", 2}, {"pair:1", "pair", 1}};
  for (const auto& [text, gang, size] : right) {
    setenv("CLOUD_GANG", text, 1);
    const auto options = With("1", nullptr, nullptr);
    ASSERT_TRUE(options.ok()) << options.status();
    EXPECT_EQ(options->gang, gang);
    EXPECT_EQ(options->gang_size, size);
  }
  for (const char* odd : {"pair", ":2", "pair:", "pair:0", "pair:-1", "pair:two", "pair:1.5",
                          "pair:99999999999", ":"}) {
    setenv("CLOUD_GANG", odd, 1);
    const absl::Status status = With("1", nullptr, nullptr).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << odd;
    EXPECT_NE(status.message().find("CLOUD_GANG"), std::string::npos) << status;
  }
  unsetenv("CLOUD_GANG");
}

TEST_F(EnvironmentTest, HeadsAreKeptForACloudAlone) {
  setenv("CLOUD_HEADS", "/tmp/heads", 1);
  EXPECT_EQ(With("1", nullptr, nullptr)->heads_file, "/tmp/heads");
  EXPECT_EQ(With("0", nullptr, nullptr)->heads_file, "");
  setenv("CLOUD_HEADS", "0", 1);
  EXPECT_EQ(With("1", nullptr, nullptr)->heads_file, "");
  unsetenv("CLOUD_HEADS");
  setenv("OUTBOARD_DATA", "/tmp/data", 1);
  EXPECT_EQ(With("1", nullptr, nullptr)->heads_file, "/tmp/data/seen-heads");
  unsetenv("OUTBOARD_DATA");
}

TEST_F(EnvironmentTest, MemoryIsWrittenAsEverywhere) {
  for (const auto& [text, bytes] : {std::pair<const char*, uint64_t>("512MB", 512'000'000),
                                    {"1.5GB", 1'500'000'000},
                                    {"8gib", uint64_t{8} << 30}}) {
    setenv("CLOUD_MEMORY", text, 1);
    const auto options = With("1", nullptr, nullptr);
    ASSERT_TRUE(options.ok()) << options.status();
    EXPECT_EQ(options->device_memory_bytes, bytes) << text;
  }
  for (const char* wrong : {"0", "-1GB", "8 apples", "1e3"}) {
    setenv("CLOUD_MEMORY", wrong, 1);
    EXPECT_TRUE(absl::IsInvalidArgument(With("1", nullptr, nullptr).status())) << wrong;
  }
  unsetenv("CLOUD_MEMORY");
}

TEST_F(EnvironmentTest, HostsAndKeysAreChecked) {
  test::ExpectAsDocumented("`CLOUD_HOST` without a port", With("1", "box", "k").status());
  test::ExpectAsDocumented("`CLOUD_HOST` with a bad port", With("1", "box:x", "k").status());
  test::ExpectAsDocumented("`CLOUD_HOST` is set and empty", With("1", "", "k").status());
  // From a file, with its line's end: gRPC would end the program.
  const absl::Status status = With("1", "box:1", "ob_live_secret\n").status();
  test::ExpectAsDocumented("`CLOUD_KEY` holds a line break", status);
  EXPECT_EQ(std::string(status.message()).find("secret"), std::string::npos) << status;
}

TEST(Target, OnThisMachine) {
  for (const char* here :
       {"unix:/tmp/s", "localhost:6667", "127.0.0.1:6667", "127.8.0.1:1", "[::1]:1"})
    EXPECT_TRUE(IsOnThisMachine(here)) << here;
  for (const char* elsewhere : {"box:6667", "128.0.0.1:6667", "127.0.0.1.example.org:1",
                                "localhost.example.org:1", "[::2]:1"})
    EXPECT_FALSE(IsOnThisMachine(elsewhere)) << elsewhere;
}

TEST(Target, ThatNothingIsEncryptedIsToldOnceAndOfOtherMachinesOnly) {
  std::vector<std::string> lines;
  const auto tell = [&](const std::string& line) { lines.push_back(line); };
  Teller(tell).TellOfPlainText("localhost:6667");
  EXPECT_TRUE(lines.empty());
  for (int session = 0; session < 2; ++session) Teller(tell).TellOfPlainText("box:6667");
  ASSERT_EQ(lines.size(), 1u);
  test::ExpectAsDocumented("The gateway is on another machine, and `CLOUD_INSECURE=1` is set",
                           lines[0]);
}

TEST(Connect, ChecksWhatItIsGiven) {
  SessionOptions options;
  options.target = "box";
  EXPECT_EQ(Session::Connect(options).status().code(), StatusCode::kInvalidArgument);
  options.target = "box:1";
  options.key = "a b";
  EXPECT_EQ(Session::Connect(options).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace outboard::session
