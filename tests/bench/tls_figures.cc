#include "tests/bench/tls_figures.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/check.h"
#include "client/session/link/bulk.h"
#include "client/session/session.h"
#include "gateway/server/gateway.h"
#include "gateway/tls/authority_files.h"
#include "tests/bench/report.h"
#include "tests/support/cluster.h"
#include "tests/support/random_words.h"
#include "tests/support/step.h"
#include "wire/blobs/upload.h"

namespace outboard::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kStepsOfRound = 300, kRounds = 9;
constexpr size_t kUploadBytes = 256'000'000;
constexpr int kUploads = 5;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// 127.0.0.2 is this machine's too, and no client takes a shorter way to it than TCP.
std::string ByTcp(const std::string& target) {
  return "127.0.0.2" + target.substr(target.rfind(':'));
}

// A box as `outboard serve` makes it, listening on every address, with a session of its own.
struct Box {
  explicit Box(const std::string& flags) {
    server = cluster.Start("serve --listen 0.0.0.0:0 " + flags + " --data " + cluster.data());
    options.target = ByTcp(cluster.last_address());
    options.key = cluster.key();
    const std::string fingerprint = ValueOrDie(gateway::FingerprintForClients(cluster.data()));
    options.protection = ValueOrDie(session::Protection::Trusting("", fingerprint, {}));
    session = ValueOrDie(Session::Connect(options));
    for (int i = 0; i < kStepsOfRound; ++i) OB_CHECK_OK(test::Step(*session));
  }
  double StepMs() {
    std::vector<double> times;
    for (int i = 0; i < kStepsOfRound; ++i) {
      const Clock::time_point begin = Clock::now();
      OB_CHECK_OK(test::Step(*session));
      times.push_back(1000 * SecondsSince(begin));
    }
    return Quantile(times, 0.5);
  }
  // Of bytes that were never sent before.
  double UploadSeconds(uint64_t seed) {
    const auto connections =
        session::MakeBulkConnections(options.target, options.key, options.protection);
    const wire::BlobSource source = test::RandomSource(kUploadBytes, seed);
    const Clock::time_point begin = Clock::now();
    OB_CHECK(ValueOrDie(wire::UploadBlobs(connections, {&source, 1})).sent_bytes >= kUploadBytes);
    return SecondsSince(begin);
  }

  test::Cluster cluster;
  std::unique_ptr<test::Process> server;
  session::SessionOptions options;
  std::unique_ptr<Session> session;
};

}  // namespace

void TlsFigures() {
  Box plain("--insecure"), tls("");
  // In turns, so that a busy moment of the machine meets both.
  std::vector<double> plain_ms, tls_ms, ratios;
  for (int round = 0; round < kRounds; ++round) {
    plain_ms.push_back(plain.StepMs());
    tls_ms.push_back(tls.StepMs());
    ratios.push_back(tls_ms.back() / plain_ms.back());
  }
  Report("tls_step_ratio", Quantile(ratios, 0.5), "",
         absl::StrFormat("%.3f ms, without TLS %.3f ms", Quantile(tls_ms, 0.5),
                         Quantile(plain_ms, 0.5)),
         "a small step by TCP on loopback, TLS over plain, median of 9 rounds of 300");
  std::vector<double> plain_s, tls_s, speeds;
  for (uint64_t i = 1; i <= kUploads; ++i) {
    plain_s.push_back(plain.UploadSeconds(i));
    tls_s.push_back(tls.UploadSeconds(i));
    speeds.push_back(plain_s.back() / tls_s.back());
  }
  const auto gb_per_s = [](const std::vector<double>& seconds) {
    return kUploadBytes / Quantile(seconds, 0.5) / 1e9;
  };
  Report("tls_upload_ratio", Quantile(speeds, 0.5), "",
         absl::StrFormat("%.2f GB/s, without TLS %.2f GB/s", gb_per_s(tls_s), gb_per_s(plain_s)),
         "256 MB by the connections of a session (8) on loopback, TLS over plain, median of 5");
  for (Box* box : {&plain, &tls}) OB_CHECK_OK(box->session->Close());
}

}  // namespace outboard::bench
