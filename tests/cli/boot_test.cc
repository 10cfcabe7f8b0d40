// `outboard boot`: what it serves to machines that boot over the network, and to whom it says no.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <fstream>
#include <map>
#include <mutex>

#include "cli/http_answers.h"
#include "cli/node/boot_script.h"
#include "cli/node/boot_server.h"
#include "cli/node/image_store.h"
#include "tests/support/http.h"
#include "tests/support/temp_folder.h"

namespace outboard::cli {
namespace {

using test::Ask;
using test::Get;

std::string Sha256Of(const std::string& path) { return ReadBootFile(path).value().digest; }

class BootTest : public ::testing::Test {
 protected:
  BootTest() {
    Write("vmlinuz", "a kernel");
    for (int i = 0; i < 200'000; ++i) initramfs_ += "initramfs " + std::to_string(i) + "\n";
    Write("initramfs", initramfs_);
    WriteSums();
  }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::trunc | std::ios::binary) << text;
  }
  void WriteSums() {
    Write("SHA256SUMS", Sha256Of(folder_ / "vmlinuz") + "  vmlinuz\n" +
                            Sha256Of(folder_ / "initramfs") + "  initramfs\n");
  }
  void Serve() {
    BootServerOptions options{.listen = "127.0.0.1:0",
                              .image = ReadBootImage(folder_.path()).value(),
                              .files = {},
                              .choose =
                                  [this](const std::string& serial, bool boots) {
                                    std::lock_guard lock(mutex_);
                                    boots_ += boots;
                                    const auto at = chosen_.find(serial);
                                    return at == chosen_.end() ? std::nullopt
                                                               : std::optional(at->second);
                                  },
                              .script = {.gateway = "10.0.2.2:6668", .append = "console=ttyS0"},
                              .claim_for = [this](const std::string& serial) {
                                std::lock_guard lock(mutex_);
                                asked_.push_back(serial);
                                return std::exchange(claims_[serial], "");
                              }};
    image_ = *options.image;
    auto server = BootServer::Start(std::move(options));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::string InitramfsPath() const { return "/sha256/" + image_.initramfs.digest; }

  const test::TempFolder folder_;
  std::string initramfs_;
  BootImage image_;
  std::mutex mutex_;
  std::map<std::string, std::string> claims_;
  std::map<std::string, BootChoice> chosen_;
  int boots_ = 0;
  std::vector<std::string> asked_;
  std::unique_ptr<BootServer> server_;
};

// It is tried again after a pause, and not a million times a second.
TEST(AcceptLoopTest, WithoutAFreeDescriptor_ItWaits_AndGoesOn) {
  using boost::asio::ip::tcp;
  boost::asio::io_context io;
  tcp::acceptor acceptor(io);
  ASSERT_TRUE(ListenAt({boost::asio::ip::address_v4::loopback(), 0}, "here", acceptor).ok());
  int taken = 0;
  AcceptLoop accepts(acceptor, [&](const tcp::socket&) { ++taken; });
  accepts.Next();
  tcp::socket client(io);
  client.connect(acceptor.local_endpoint());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = dup(0);
  ASSERT_GE(next, 0);
  close(next);
  const rlimit none{static_cast<rlim_t>(next), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  io.run_for(std::chrono::milliseconds(350));
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_GE(accepts.failures(), 1);
  EXPECT_LE(accepts.failures(), 4);
  EXPECT_EQ(taken, 0);
  while (taken == 0) io.run_one();
}

TEST_F(BootTest, TheScripts_NameTheFilesByDigest) {
  Serve();
  const std::string first = Get(server_->address(), "/boot.ipxe", "Connection: close\r\n");
  EXPECT_TRUE(first.starts_with("#!ipxe\n")) << first;
  EXPECT_NE(first.find("node.ipxe?serial=${serial:uristring}"), std::string::npos);
  const std::string second =
      Get(server_->address(), "/node.ipxe?serial=S%2f7&uuid=ab&mac=52-54", "Connection: close\r\n");
  EXPECT_NE(second.find("kernel sha256/" + image_.kernel.digest + " initrd=outboard.img"),
            std::string::npos)
      << second;
  EXPECT_NE(second.find("initrd --name outboard.img sha256/" + image_.initramfs.digest),
            std::string::npos);
  EXPECT_NE(second.find("outboard.gateway=10.0.2.2:6668"), std::string::npos);
  EXPECT_NE(second.find("outboard.image=" + image_.digest), std::string::npos);
  EXPECT_NE(second.find(" console=ttyS0"), std::string::npos);
  EXPECT_EQ(second.find("outboard.claim"), std::string::npos);
  EXPECT_EQ(asked_, std::vector<std::string>{"S_7"});
}

TEST_F(BootTest, AClaim_GoesToItsSerialAlone_Once) {
  claims_["s-1"] = "ob_claim_1";
  Serve();
  const auto script = [&](const std::string& query) {
    return Get(server_->address(), "/node.ipxe?" + query, "Connection: close\r\n");
  };
  EXPECT_EQ(script("serial=s-2").find("claim"), std::string::npos);
  EXPECT_EQ(script("").find("claim"), std::string::npos);
  EXPECT_EQ(script("serial=%0aoutboard.claim=x").find("claim=x"), std::string::npos);
  // Whoever only looks does not take it.
  Ask(server_->address(),
      "HEAD /node.ipxe?serial=s-1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_NE(script("serial=s-1").find(" outboard.claim=ob_claim_1 "), std::string::npos);
  EXPECT_EQ(script("serial=s-1").find("claim"), std::string::npos);
}

// An image of this kernel, in a folder of its own.
BootImage MakeImage(const std::string& folder, const std::string& kernel,
                    const std::string& expects) {
  std::filesystem::create_directories(folder);
  std::string head(0x400, '\0');
  head.replace(0x202, 4, "HdrS");
  head[0x20e] = '\x00';  // 0x200 + 0x100
  head[0x20f] = '\x01';
  head.replace(0x300, kernel.size() + 8, kernel + " (debian");
  std::ofstream(folder + "/vmlinuz", std::ios::binary) << head;
  std::ofstream(folder + "/initramfs") << "an initramfs for " << expects;
  std::ofstream(folder + "/kernel-release") << expects << "\n";
  std::ofstream sums(folder + "/SHA256SUMS");
  for (const char* const name : {"vmlinuz", "initramfs", "kernel-release"})
    sums << Sha256Of(folder + "/" + name) << "  " << name << "\n";
  sums.close();
  return ReadBootImage(folder).value();
}

TEST_F(BootTest, AMachine_BootsWhatWasChosenForIt_AndIsToldThatItIsOnTrial) {
  const BootImage other = MakeImage(folder_ / "other", "6.1.0-1", "6.1.0-1");
  chosen_["s-1"] = {.image = other, .joins_within_s = 60};
  Serve();
  const auto script = [&](const std::string& serial) {
    return Get(server_->address(), "/node.ipxe?serial=" + serial, "Connection: close\r\n");
  };
  EXPECT_NE(script("s-1").find("outboard.image=" + other.digest), std::string::npos);
  EXPECT_NE(script("s-1").find(" outboard.joins_within=60"), std::string::npos);
  EXPECT_NE(script("s-2").find("outboard.image=" + image_.digest), std::string::npos);
  EXPECT_EQ(script("s-2").find("joins_within"), std::string::npos);
  EXPECT_EQ(Get(server_->address(), "/sha256/" + other.initramfs.digest, "Connection: close\r\n"),
            "an initramfs for 6.1.0-1");
  // Whoever only looks spends no trial.
  const int boots = boots_;
  Ask(server_->address(),
      "HEAD /node.ipxe?serial=s-1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(boots_, boots);
}

// The table of errors: expected and found.
TEST_F(BootTest, ImageAdd_RefusesWhatDoesNotFit) {
  const std::string data = folder_ / "data", folder = folder_ / "new";
  const BootImage image = MakeImage(folder, "6.1.0-49-amd64", "6.1.0-49-amd64");
  EXPECT_EQ(KernelRelease(folder + "/vmlinuz").value(), "6.1.0-49-amd64");
  const auto refused = [&](const ImageToAdd& add, const std::string& expected,
                           const std::string& found) {
    const absl::Status status = AddImage(data, add).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    const std::string message(status.message());
    EXPECT_NE(message.find(expected), std::string::npos) << message;
    EXPECT_NE(message.find(found), std::string::npos) << message;
  };
  const std::string zeros = "sha256:" + std::string(64, '0');
  refused({.folder = folder, .digest = zeros}, "expected " + zeros, "found " + image.digest);
  refused({.folder = folder, .digest = "sha256:12"}, "--digest", "64 hex digits");
  MakeImage(folder_ / "mixed", "6.1.0-50-amd64", "6.1.0-49-amd64");
  refused({.folder = folder_ / "mixed"}, "expects kernel 6.1.0-49-amd64", "found 6.1.0-50-amd64");
  refused({.folder = folder_.path()}, "vmlinuz", "is no kernel");
  const auto added = AddImage(data, {.folder = folder, .digest = image.digest});
  ASSERT_TRUE(added.ok()) << added.status();
  EXPECT_EQ(added->kernel, "6.1.0-49-amd64");
  EXPECT_EQ(ReadStoredImage(data, image.digest)->initramfs.digest, image.initramfs.digest);
  EXPECT_EQ(ReadStoredImage(data, zeros).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(ReadStoredImage(data, "sha256:../..").ok());
  // Changed where it is kept: it is not served.
  const std::string kept = ReadStoredImage(data, image.digest)->initramfs.path;
  std::ofstream(kept, std::ios::app) << "x";
  EXPECT_EQ(ReadStoredImage(data, image.digest).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(BootTest, ImageAdd_WithASigner_AsksForItsSignature) {
  const std::string data = folder_ / "data", folder = folder_ / "new";
  MakeImage(folder, "6.1", "6.1");
  const auto shell = [&](const std::string& line) {
    return std::system(("cd " + folder_.path() + " && " + line + " 2>/dev/null").c_str());
  };
  for (const char* const key : {"one", "two"}) {
    const std::string name = key;
    if (shell("openssl ecparam -name prime256v1 -genkey -noout -out " + name + ".key && " +
              "openssl pkey -in " + name + ".key -pubout -out " + name + ".pem") != 0)
      GTEST_SKIP() << "there is no openssl to sign with";
  }
  const auto sign = [&](const std::string& key) {
    return shell(OUTBOARD_SOURCE_DIR "/deploy/image/sign new " + key + ".key >/dev/null");
  };
  const ImageToAdd add{.folder = folder, .digest = {}, .signer_file = folder_ / "one.pem"};
  const auto unsigned_one = AddImage(data, add);
  EXPECT_NE(unsigned_one.status().message().find("found none"), absl::string_view::npos);
  ASSERT_EQ(sign("two"), 0);
  EXPECT_NE(AddImage(data, add).status().message().find("found another"), absl::string_view::npos);
  ASSERT_EQ(sign("one"), 0);
  EXPECT_TRUE(AddImage(data, add).ok());
  // From then on each.
  ASSERT_EQ(sign("two"), 0);
  EXPECT_FALSE(AddImage(data, {.folder = folder}).ok());
  EXPECT_EQ(AddImage(data, {.folder = folder, .digest = {}, .signer_file = folder_ / "two.pem"})
                .status()
                .code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(AddImage(data, {.folder = folder, .digest = {}, .signer_file = folder_ / "one.key"})
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(BootTest, AFile_IsServedWhole_AndInParts) {
  Serve();
  EXPECT_EQ(Get(server_->address(), InitramfsPath(), "Connection: close\r\n"), initramfs_);
  const auto ask = [&](const std::string& headers, const std::string& method = "GET ") {
    return Ask(server_->address(), method + InitramfsPath() + " HTTP/1.1\r\nHost: x\r\n" + headers +
                                       "Connection: close\r\n\r\n");
  };
  const std::string part = ask("Range: bytes=10-19\r\n");
  EXPECT_TRUE(part.starts_with("HTTP/1.1 206 ")) << part;
  EXPECT_TRUE(part.ends_with("\r\n\r\n" + initramfs_.substr(10, 10)));
  EXPECT_NE(part.find("Content-Range: bytes 10-19/" + std::to_string(initramfs_.size())),
            std::string::npos)
      << part;
  EXPECT_TRUE(ask("Range: bytes=-5\r\n").ends_with(initramfs_.substr(initramfs_.size() - 5)));
  EXPECT_TRUE(ask("Range: bytes=999999999-\r\n").starts_with("HTTP/1.1 416 "));
  // The parts of another file are of no use.
  const std::string whole = ask("Range: bytes=10-19\r\nIf-Range: \"another\"\r\n");
  EXPECT_TRUE(whole.starts_with("HTTP/1.1 200 "));
  EXPECT_TRUE(whole.ends_with(initramfs_));
  const std::string head = ask("", "HEAD ");
  EXPECT_NE(head.find("Content-Length: " + std::to_string(initramfs_.size())), std::string::npos);
  EXPECT_TRUE(head.ends_with("\r\n\r\n"));
}

TEST_F(BootTest, NothingElse_IsServed) {
  Serve();
  for (const char* path :
       {"/", "/vmlinuz", "/../etc/passwd", "/sha256/", "/sha256/../SHA256SUMS", "/SHA256SUMS"}) {
    const std::string answer = Ask(
        server_->address(), std::string("GET ") + path + " HTTP/1.1\r\nConnection: close\r\n\r\n");
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 404 ")) << path << answer;
  }
  EXPECT_TRUE(Ask(server_->address(),
                  "POST /boot.ipxe HTTP/1.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                  .starts_with("HTTP/1.1 405 "));
  // Too long a header, and what is no HTTP: no answer.
  EXPECT_EQ(Ask(server_->address(),
                "GET /boot.ipxe HTTP/1.1\r\nX: " + std::string(20'000, 'x') + "\r\n\r\n"),
            "");
  EXPECT_EQ(Ask(server_->address(), std::string("\x16\x03\x01\x02\x00", 5) + "\r\n\r\n"), "");
}

TEST_F(BootTest, AnImageThatIsNotWhatItSays_IsRefused) {
  Write("initramfs", initramfs_ + "x");
  const auto image = ReadBootImage(folder_.path());
  ASSERT_EQ(image.status().code(), absl::StatusCode::kInvalidArgument);
  const std::string message(image.status().message());
  EXPECT_NE(message.find("expects "), std::string::npos) << message;
  EXPECT_NE(message.find("found " + Sha256Of(folder_ / "initramfs")), std::string::npos);
  WriteSums();
  EXPECT_TRUE(ReadBootImage(folder_.path()).ok());
  Write("SHA256SUMS", Sha256Of(folder_ / "vmlinuz") + "  vmlinuz\n");
  EXPECT_FALSE(ReadBootImage(folder_.path()).ok());
  std::filesystem::remove(folder_ / "SHA256SUMS");
  EXPECT_FALSE(ReadBootImage(folder_.path()).ok());
}

TEST(BootScript, Ranges) {
  const struct {
    std::string header;
    int64_t begin, end;  // -1: the whole
  } cases[] = {
      {"bytes=0-9", 0, 10},
      {"bytes=90-", 90, 100},
      {"bytes=-10", 90, 100},
      {"bytes=-200", 0, 100},
      {"bytes=95-200", 95, 100},
      {"bytes=100-", 100, 100},
      {"bytes=200-300", 100, 100},
      {"bytes=-0", 100, 100},
      {"", -1, -1},
      {"bytes=", -1, -1},
      {"bytes=-", -1, -1},
      {"bytes=9-0", -1, -1},
      {"bytes=0-1,5-6", -1, -1},
      {"bytes=+1-2", -1, -1},
      {"lines=0-1", -1, -1},
      {"bytes=0-99999999999999999999999", -1, -1},
  };
  for (const auto& c : cases) {
    const auto range = ParseRange(c.header, 100);
    EXPECT_EQ(range.has_value(), c.begin >= 0) << c.header;
    if (!range.has_value() || c.begin < 0) continue;
    EXPECT_EQ(range->begin, static_cast<uint64_t>(c.begin)) << c.header;
    EXPECT_EQ(range->end, static_cast<uint64_t>(c.end)) << c.header;
  }
}

TEST(BootScript, AMachineWithoutASerialNumber_GoesByWhatProcess1TakesToo) {
  EXPECT_EQ(ParseBootQuery("serial=&uuid=ab-1&mac=52-54").serial, "ab-1");
  EXPECT_EQ(ParseBootQuery("serial=Not%20Specified&uuid=&mac=52-54").serial, "mac-52-54");
  EXPECT_EQ(ParseBootQuery("x").serial, "");
  EXPECT_EQ(ParseBootQuery("serial=%zz%4&uuid").serial, "zz_4");
}

TEST(BootScript, WordsForTheKernel_AreWords) {
  EXPECT_TRUE(CheckWords("--append", "console=ttyS0,115200 panic=10").ok());
  EXPECT_TRUE(CheckWords("--append", "log_host=logs.outboard.example x.rdinit=1").ok());
  for (const std::string& bad :
       {std::string("a\nboot"), std::string("${x}"), std::string(600, 'x'),
        std::string("quiet outboard.claim=x"), std::string("outboard.claim=x"),
        std::string("rdinit=/bin/sh")})
    EXPECT_EQ(CheckWords("--append", bad).code(), absl::StatusCode::kInvalidArgument) << bad;
}

}  // namespace
}  // namespace outboard::cli
