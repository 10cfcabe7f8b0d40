// deploy/nginx/outboard.conf, run as it stands but for its ports and paths: a session, an upload
// and an idle session through it, the caller's true address, and what it does not let through.
//
// Longer runs, as docs/measurements/ has them: OUTBOARD_NGINX_IDLE_S=300,
// OUTBOARD_NGINX_UPLOAD_MB=1000.
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_replace.h"
#include "base/check.h"
#include "client/session/link/bulk.h"
#include "client/session/link/grpc_link.h"
#include "client/session/session.h"
#include "gateway/tls/authority_files.h"
#include "proto/account.grpc.pb.h"
#include "proto/fleet.grpc.pb.h"
#include "tests/support/cluster.h"
#include "tests/support/free_port.h"
#include "tests/support/paths.h"
#include "tests/support/random_words.h"
#include "tests/support/step.h"
#include "wire/blobs/upload.h"
#include "wire/status.h"

namespace outboard {
namespace {

constexpr char kNginx[] = "/usr/sbin/nginx";
constexpr char kSecret[] = "0123456789abcdef0123456789abcdef";

int SettingOr(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
}

class Nginx : public ::testing::Test {
 protected:
  void SetUp() override {
    if (access(kNginx, X_OK) != 0) GTEST_SKIP() << "no nginx here (apt install nginx)";
    Write("gateway.secret", std::string(kSecret) + "\n");
    cluster_.StartGateway("--proxy-secret-file " + (folder_ / "gateway.secret"));
    worker_ = cluster_.StartWorker();
    const auto authority = ValueOrDie(gateway::EnsureAuthority(cluster_.data()));
    fingerprint_ = authority.certificate().fingerprint().ToString();
    ASSERT_EQ(test::Outboard("cert issue localhost 127.0.0.1 ::1 -o " + (folder_ / "n") +
                             " --data " + cluster_.data())
                  .code,
              0);
    Write("secret.conf", std::string("grpc_set_header outboard-proxy-secret \"") + kSecret + "\";");
    port_ = test::FreePort();  // nginx takes no port 0
    port6_ = test::FreePort("::1");
    const std::string listen6 =
        port6_ > 0 ? "listen [::1]:" + std::to_string(port6_) + " ssl http2;" : "";
    std::string config = test::ReadFile(test::SourceFile("deploy/nginx/outboard.conf"));
    for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
             {"listen 443 ssl http2;", "listen 127.0.0.1:" + std::to_string(port_) + " ssl http2;"},
             {"listen [::]:443 ssl http2;", listen6},
             {"server 127.0.0.1:6667;", "server " + cluster_.target() + ";"},
             {"/etc/nginx/outboard.pem", folder_ / "n.pem"},
             {"/etc/nginx/outboard.key", folder_ / "n.key"},
             {"/etc/nginx/outboard-proxy-secret", folder_ / "secret.conf"}}) {
      ASSERT_NE(config.find(from), std::string::npos) << from;
      config = absl::StrReplaceAll(config, {{from, to}});
    }
    Write("outboard.conf", config);
    std::string temporary;
    for (const char* of : {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"})
      temporary += std::string(of) + "_temp_path " + (folder_ / of) + ";\n";
    Write("nginx.conf", std::string(geteuid() == 0 ? "user root;\n" : "") +
                            "daemon off;\nworker_processes 1;\npid " + (folder_ / "pid") +
                            ";\nevents { worker_connections 512; }\nhttp {\naccess_log " +
                            (folder_ / "access.log") + ";\n" + temporary + "include " +
                            (folder_ / "outboard.conf") + ";\n}\n");
    nginx_ = std::make_unique<test::Process>(std::vector<std::string>{
        kNginx, "-p", folder_.path(), "-c", folder_ / "nginx.conf", "-e", folder_ / "error.log"});
    ASSERT_TRUE(test::Eventually([&] { return std::filesystem::exists(folder_ / "pid"); }))
        << nginx_->err() << test::ReadFile(folder_ / "error.log");
  }
  void TearDown() override {
    // The master ends its workers only if it is asked to.
    if (nginx_ != nullptr) {
      EXPECT_EQ(nginx_->Stop(SIGTERM), 0);
    }
  }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    std::filesystem::permissions(
        folder_ / name, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  }
  std::string target() const { return "127.0.0.1:" + std::to_string(port_); }
  std::string target6() const { return "[::1]:" + std::to_string(port6_); }
  session::Protection Protection() const {
    return ValueOrDie(session::Protection::Trusting("", fingerprint_, {}));
  }
  session::SessionOptions Options() {
    session::SessionOptions options = cluster_.Options();
    options.target = target();
    options.protection = Protection();
    return options;
  }
  std::string KeyFrom(const std::string& address) {
    const test::Ended made =
        test::Outboard("key create --from " + address + " --data " + cluster_.data());
    EXPECT_EQ(made.code, 0) << made.err;
    return made.out.substr(0, made.out.find('\n'));
  }
  // Asks for usage with `key`, and with headers that a client has no business to send.
  absl::Status Ask(const std::string& at, const session::Protection& protection,
                   const std::string& key,
                   const std::vector<std::pair<std::string, std::string>>& headers = {}) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + key);
    for (const auto& [name, value] : headers) context.AddMetadata(name, value);
    proto::UsageReply reply;
    return wire::FromGrpc(proto::Account::NewStub(session::MakeChannel(at, protection))
                              ->Usage(&context, proto::UsageRequest(), &reply));
  }

  test::TempFolder folder_;
  test::Cluster cluster_;
  std::unique_ptr<test::Process> worker_, nginx_;
  std::string fingerprint_;
  int port_ = -1, port6_ = -1;
};

TEST_F(Nginx, StepsAnIdleSessionAndAnUploadGoThroughIt) {
  auto session = Session::Connect(Options());
  ASSERT_TRUE(session.ok()) << session.status();
  for (int step = 0; step < 50; ++step) ASSERT_TRUE(test::Step(**session).ok()) << step;
  const size_t size = static_cast<size_t>(SettingOr("OUTBOARD_NGINX_UPLOAD_MB", 24)) * 1'000'000;
  const wire::BlobSource source = test::RandomSource(size, 1);
  const auto connections = session::MakeBulkConnections(target(), cluster_.key(), Protection());
  const auto uploaded = wire::UploadBlobs(connections, {&source, 1});
  ASSERT_TRUE(uploaded.ok()) << uploaded.status();
  EXPECT_GE(uploaded->sent_bytes, size);
  std::this_thread::sleep_for(std::chrono::seconds(SettingOr("OUTBOARD_NGINX_IDLE_S", 4)));
  EXPECT_TRUE(test::Step(**session).ok());
  EXPECT_TRUE((*session)->Close().ok());
  // One stream from the first step to the last: nginx writes a line when one ends.
  const auto streams = [&] {
    const std::string log = test::ReadFile(folder_ / "access.log");
    int count = 0;
    for (size_t at = 0; (at = log.find("Cloud/Session", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  EXPECT_TRUE(test::Eventually([&] { return streams() > 0; }));
  EXPECT_EQ(streams(), 1);
  // The key is in no log of nginx's.
  EXPECT_EQ(test::ReadFile(folder_ / "access.log").find("ob_live"), std::string::npos);
  EXPECT_EQ(test::ReadFile(folder_ / "error.log").find("ob_live"), std::string::npos);
}

TEST_F(Nginx, KeysAreBoundToTheTrueAddressAndNobodyForgesIt) {
  if (port6_ < 0) GTEST_SKIP() << "no IPv6 on loopback here: the two ends have the same address";
  const std::string far = KeyFrom("::1"), near = KeyFrom("127.0.0.1");
  const session::Protection tls = Protection(), plain;
  // nginx itself comes from 127.0.0.1.
  EXPECT_TRUE(Ask(target6(), tls, far).ok());
  EXPECT_TRUE(absl::IsUnauthenticated(Ask(target6(), tls, near)));
  EXPECT_TRUE(absl::IsUnauthenticated(Ask(target(), tls, far)));
  EXPECT_TRUE(Ask(target(), tls, near).ok());
  const std::pair<std::string, std::string> address{"outboard-client-address", "127.0.0.1"},
      wrong{"outboard-proxy-secret", "guessed"}, right{"outboard-proxy-secret", kSecret};
  // What a client says is replaced.
  EXPECT_TRUE(absl::IsUnauthenticated(Ask(target6(), tls, near, {address})));
  EXPECT_TRUE(absl::IsUnauthenticated(Ask(target6(), tls, near, {address, wrong})));
  EXPECT_TRUE(Ask(target6(), tls, far, {address, wrong}).ok());
  // Past nginx: no word counts without the secret, and a wrong one is refused.
  const std::string other = KeyFrom("10.9.8.7");
  const std::pair<std::string, std::string> claim{"outboard-client-address", "10.9.8.7"};
  EXPECT_TRUE(absl::IsUnauthenticated(Ask(cluster_.target(), plain, other, {claim})));
  EXPECT_TRUE(absl::IsUnauthenticated(Ask(cluster_.target(), plain, other, {claim, wrong})));
  EXPECT_TRUE(Ask(cluster_.target(), plain, other, {claim, right}).ok());
  EXPECT_TRUE(absl::IsUnauthenticated(Ask(cluster_.target(), plain, other, {right})));
}

TEST_F(Nginx, OnlyTheServicesOfClientsGoThroughIt) {
  grpc::ClientContext context;
  proto::KeepReply reply;
  const auto fleet = proto::Fleet::NewStub(session::MakeChannel(target(), Protection()));
  const grpc::Status status = fleet->Keep(&context, proto::KeepRequest(), &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << status.error_message();
  EXPECT_EQ(cluster_.gateway().err().find("Keep"), std::string::npos);
}

}  // namespace
}  // namespace outboard
