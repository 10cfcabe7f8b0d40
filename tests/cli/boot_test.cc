// `outboard boot`: what it serves to machines that boot over the network, and to whom it says no.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <fstream>
#include <tuple>

#include "base/check.h"
#include "base/host_port.h"
#include "cli/http_answers.h"
#include "tests/cli/boot_world.h"
#include "tests/support/http.h"
#include "wire/tls/authority.h"

namespace outboard::cli {
namespace {

using test::Ask;
using test::Get;

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
  // Where the machine has found it: from there come drivers.
  EXPECT_NE(second.find(" outboard.boot=x:80 "), std::string::npos) << second;
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

// What HTTPS answers to `request`, by `context`; "" where there is no connection.
std::string AskByTls(const std::string& address, boost::asio::ssl::context& context,
                     const std::string& request) {
  namespace ssl = boost::asio::ssl;
  boost::asio::io_context io;
  ssl::stream<boost::asio::ip::tcp::socket> stream(io, context);
  boost::system::error_code error;
  const auto port = static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  stream.lowest_layer().connect({boost::asio::ip::address_v4::loopback(), port}, error);
  if (!error) stream.handshake(ssl::stream_base::client, error);
  if (!error) boost::asio::write(stream, boost::asio::buffer(request), error);
  std::string answer;
  if (!error)
    boost::asio::read(stream, boost::asio::dynamic_buffer(answer), error);  // to its end
  return answer;
}

TEST_F(BootTest, OverHttps_ItServesTheSame_WithACertificateOfItsCa) {
  namespace ssl = boost::asio::ssl;
  const auto authority = tls::Authority::Generate("a test's CA").value();
  const auto other = tls::Authority::Generate("another CA").value();
  int issued = 0;
  https_identity_ = [&]() -> absl::StatusOr<HttpsIdentity> {
    ++issued;
    OB_ASSIGN_OR_RETURN(const tls::KeyAndChain made,
                        authority.Issue({.common_name = "boot", .names = {"127.0.0.1"}}));
    // Due at once: each connection finds a new one.
    return HttpsIdentity{.pem = made.ToPem(), .renew_at = absl::InfinitePast()};
  };
  Serve();
  const auto client = [](const tls::Authority& believed) {
    ssl::context context(ssl::context::tls_client);
    const std::string pem = believed.certificate().ToPem();
    context.add_certificate_authority(boost::asio::buffer(pem));
    context.set_verify_mode(ssl::verify_peer);
    context.set_verify_callback(ssl::host_name_verification("127.0.0.1"));
    return context;
  };
  ssl::context good = client(authority), bad = client(other);
  const std::string get = "GET " + InitramfsPath() + " HTTP/1.1\r\nHost: x\r\n";
  const std::string whole =
      AskByTls(server_->https_address(), good, get + "Connection: close\r\n\r\n");
  EXPECT_TRUE(whole.ends_with("\r\n\r\n" + initramfs_)) << whole.substr(0, 200);
  const std::string part = AskByTls(server_->https_address(), good,
                                    get + "Range: bytes=10-19\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(part.starts_with("HTTP/1.1 206 ")) << part;
  EXPECT_TRUE(part.ends_with("\r\n\r\n" + initramfs_.substr(10, 10)));
  // Drivers come without TLS, from the other port.
  const std::string script =
      AskByTls(server_->https_address(), good,
               "GET /node.ipxe?serial=s-1 HTTP/1.1\r\nHost: boot:99\r\nConnection: close\r\n\r\n");
  EXPECT_NE(script.find(" outboard.boot=boot:" +
                        server_->address().substr(server_->address().rfind(':') + 1) + " "),
            std::string::npos)
      << script;
  EXPECT_EQ(AskByTls(server_->https_address(), bad, get + "\r\n"), "");
  EXPECT_EQ(issued, 5);  // at the start, and for each connection
  // Without TLS, it says nothing there.
  EXPECT_EQ(Get(server_->https_address(), "/boot.ipxe", "Connection: close\r\n"), "");
  ssl::context old = client(authority);
  SSL_CTX_set_max_proto_version(old.native_handle(), TLS1_1_VERSION);
  EXPECT_EQ(AskByTls(server_->https_address(), old, get + "\r\n"), "");
}

TEST_F(BootTest, OverHttps_WithoutACertificate_ItDoesNotStart) {
  BootServerOptions options{.listen = "127.0.0.1:0",
                            .https_listen = "127.0.0.1:0",
                            .https_identity = [] { return HttpsIdentity{.pem = "none"}; }};
  EXPECT_EQ(BootServer::Start(std::move(options)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(BootTest, ASignedFile_IsTheSameForEverybody_AndSpendsNothing) {
  Write("outboard.efi", "MZ and more");
  efi_ = ReadBootFile(folder_ / "outboard.efi").value();
  claims_["s-1"] = "ob_claim_1";
  Serve();
  for (const char* path : {"/boot.efi", "/boot.efi?serial=s-1"})
    EXPECT_EQ(Get(server_->address(), path, "Connection: close\r\n"), "MZ and more");
  EXPECT_TRUE(asked_.empty());
  EXPECT_EQ(boots_, 0);
  const std::string head = Ask(
      server_->address(), "HEAD /boot.efi HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_NE(head.find("Content-Length: 11\r\n"), std::string::npos) << head;
  EXPECT_NE(head.find("Cache-Control: no-cache\r\n"), std::string::npos) << head;
}

TEST_F(BootTest, NothingElse_IsServed) {
  Serve();
  for (const char* path :
       {"/", "/vmlinuz", "/boot.efi", "/../etc/passwd", "/sha256/", "/sha256/../SHA256SUMS",
        "/SHA256SUMS"}) {
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

TEST(BootScript, AHost_IsHeldByACommandLine_OrLeftOut) {
  EXPECT_EQ(HostOfHeader("10.0.2.2:6669"), "10.0.2.2:6669");
  EXPECT_EQ(HostOfHeader("boot.shelf"), "boot.shelf:80");
  EXPECT_EQ(HostOfHeader("[fd00::1]:6669"), "[fd00::1]:6669");
  EXPECT_EQ(HostOfHeader("[fd00::1]"), "[fd00::1]:80");
  EXPECT_EQ(HostOfHeader(std::string(253, 'a')).size(), 256u) << "a node takes that";
  for (const std::string& bad : {std::string(), std::string("a b:1"), std::string("a${x}:1"),
                                 std::string("a\nb:1"), std::string(254, 'a')})
    EXPECT_EQ(HostOfHeader(bad), "") << bad;
}

TEST(HostPort, IsTakenApart_AndPutTogether) {
  for (const auto& [text, host, port] : std::vector<std::tuple<std::string, std::string, int>>{
           {"box:80", "box", 80}, {"[::1]:0", "::1", 0}, {"10.0.0.1:65535", "10.0.0.1", 65535}}) {
    const auto place = SplitHostPort(text);
    ASSERT_TRUE(place.has_value()) << text;
    EXPECT_EQ(place->host, host);
    EXPECT_EQ(place->port, port);
    EXPECT_EQ(ToString(*place), text);
  }
  for (const char* const bad : {"", ":", "box", "box:", ":80", "box:65536", "box:-1", "box:+1",
                                "box:8x", "::1:80", "[::1", "[]:80", "[::1]80", "[a]b:80",
                                "[[::1]]:80", "box:0000006667"})
    EXPECT_FALSE(SplitHostPort(bad).has_value()) << bad;
}

TEST(HostPort, WhatIsNone_SaysWhy) {
  for (const auto& [bad, why] : std::vector<std::pair<std::string, std::string>>{
           {"", "no port"},
           {"box", "no port"},
           {":80", "no host"},
           {"box:", "its port is no number"},
           {"box:70000", "its port is no number"},
           {"box:http", "its port is no number"},
           {"box:0000006667", "its port is no number"},
           {"[::1]:70000", "its port is no number"},
           {"::1:9464", "in brackets"},
           {"[]:80", "no host"},
           {"[box:80", "a ] is missing"},
           {"[::1]", "no port"},
           {"[::1]80", "right behind the ]"},
           {"[[::1]]:80", "brackets stand around"},
           {"a[b]:80", "brackets stand around"}}) {
    EXPECT_FALSE(SplitHostPort(bad).has_value()) << bad;
    EXPECT_NE(std::string(WhyNoHostPort(bad)).find(why), std::string::npos)
        << bad << ": " << WhyNoHostPort(bad);
  }
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
