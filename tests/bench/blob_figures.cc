#include "tests/bench/blob_figures.h"

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <thread>

#include "absl/strings/str_format.h"
#include "base/check.h"
#include "client/files/open_file.h"
#include "client/files/safetensors_header.h"
#include "client/nn/files.h"
#include "client/session/current_session.h"
#include "client/session/link/bulk.h"
#include "client/session/session.h"
#include "tests/bench/cloud.h"
#include "tests/bench/report.h"
#include "tests/support/temp_folder.h"
#include "wire/blobs/upload.h"

namespace outboard::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTensors = 64;
constexpr int64_t kElements = 4'000'000;  // of each: 16 MB of f32, 1.024 GB in all
constexpr int kUploads = 3;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

double OwnCpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
}

// Other bytes in each tensor of each file.
void WriteWeights(const std::string& path, uint64_t seed) {
  files::SafetensorsHeader header;
  for (int i = 0; i < kTensors; ++i)
    header.arrays.push_back({absl::StrFormat("layer%02d.weight", i),
                             DType::kF32,
                             {kElements},
                             0,
                             kElements * sizeof(float)});
  std::ofstream file(path, std::ios::binary);
  file << files::WriteSafetensorsHeader(header);
  std::mt19937_64 random(seed);
  std::vector<uint64_t> words(kElements / 2);
  for (int i = 0; i < kTensors; ++i) {
    for (uint64_t& word : words) word = random() & 0x3fffffff3fffffff;  // finite floats
    file.write(reinterpret_cast<const char*>(words.data()), kElements * sizeof(float));
  }
}

// A new session, and a number that needs every weight there is, from each the first.
double WeightsReady(const Cloud& cloud, const std::string& path) {
  const Clock::time_point begin = Clock::now();
  session::SessionOptions options;
  options.target = cloud.target();
  options.key = cloud.key();
  SetSession(ValueOrDie(Session::Connect(options)));
  {
    Tensor sum;
    for (const auto& [name, tensor] : nn::load_safetensors(path)) {
      const Tensor first = tensor.shrink({{0, 1}});
      sum = sum.empty() ? first : sum + first;
    }
    sum.item();
  }
  const double seconds = SecondsSince(begin);
  OB_CHECK_OK(CloseSession().status());
  SetSession(nullptr);
  return seconds;
}

}  // namespace

void BlobFigures() {
  test::TempFolder folder;
  setenv("OUTBOARD_FILE_INDEX", (folder / "index").c_str(), 1);
  const Cloud cloud(1, {{"OUTBOARD_BLOB_CACHE", folder / "cache"}});
  const wire::BlobConnections connections =
      session::MakeBulkConnections(cloud.target(), cloud.key());
  const std::string path = folder / "weights.safetensors";
  std::vector<double> rates, here, there;
  wire::Uploaded first;
  uint64_t size = 0;
  for (int i = 0; i < kUploads; ++i) {
    WriteWeights(path, static_cast<uint64_t>(i));
    auto file = ValueOrDie(files::OpenFile::Open(path));
    size = file->size_bytes();
    const files::FileRange all{0, size};
    const double own = OwnCpuSeconds(), other = cloud.cpu_seconds();
    const Clock::time_point begin = Clock::now();
    first = ValueOrDie(wire::UploadBlobs(connections, file->Sources({&all, 1})));
    const double gb = static_cast<double>(size) / 1e9;
    rates.push_back(gb / SecondsSince(begin));
    here.push_back((OwnCpuSeconds() - own) / gb);
    there.push_back((cloud.cpu_seconds() - other) / gb);
  }
  Report("upload_gb_per_s", Quantile(rates, 0.5), "GB/s", "",
         "1 GB of a file in the page cache, hashed on both ends, 8 connections, median of 3");

  const double client = Quantile(here, 0.5), gateway = Quantile(there, 0.5);
  Report("upload_cpu_s_per_gb", client + gateway, "s", "",
         absl::StrFormat("processor time of the same: %.2f of the client, %.2f of the gateway",
                         client, gateway));

  // What was written a moment ago is not believed by the index.
  std::this_thread::sleep_for(std::chrono::milliseconds(files::kFreshMs + 100));
  double seconds = 0;
  wire::Uploaded again;
  for (int i = 0; i < 2; ++i) {  // the first time to know the file
    auto file = ValueOrDie(files::OpenFile::Open(path));
    const files::FileRange all{0, size};
    const Clock::time_point begin = Clock::now();
    again = ValueOrDie(wire::UploadBlobs(connections, file->Sources({&all, 1})));
    file->Found({&all, 1}, again.names);
    file.reset();
    seconds = SecondsSince(begin);
    if (i == 0)
      Report("reupload_unread_index_s", seconds, "s", "", "the same, where the file is not known");
  }
  Report(
      "reupload_s", seconds, "s", "",
      absl::StrFormat("%d bytes for %d (%.5f %%)", again.wire_bytes, size,
                      100.0 * static_cast<double>(again.wire_bytes) / static_cast<double>(size)));
  Report("weights_cold_s", WeightsReady(cloud, path), "s", "",
         "as below, where neither index nor gateway nor worker know them by tensor");
  std::vector<double> ready;
  for (int i = 0; i < kUploads; ++i) ready.push_back(WeightsReady(cloud, path));
  Report("weights_ready_s", Quantile(ready, 0.5), "s", "",
         "Connect to a value of 64 tensors of 16 MB that are known everywhere, median of 3");
}

}  // namespace outboard::bench
