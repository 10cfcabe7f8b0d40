// What `outboard image add` takes and the boot server serves: images with their signatures, and
// drivers, which machines fetch by their digest.
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/write.hpp>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "cli/http_answers.h"
#include "cli/node/image_store.h"
#include "cli/node/served_files.h"
#include "tests/cli/boot_world.h"
#include "tests/support/paths.h"
#include "worker/init/driver_fetch.h"
#include "worker/init/node_driver.h"

namespace outboard::cli {
namespace {

class ImageStoreTest : public BootTest {
 protected:
  // Waits until it holds; false: it does not come.
  static bool Until(const std::function<bool()>& holds) {
    for (int i = 0; i < 2000; ++i) {
      if (holds()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }
};

// The table of errors: expected and found.
TEST_F(ImageStoreTest, ImageAdd_RefusesWhatDoesNotFit) {
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

// Each byte counts: the first, one in the middle and the last of each file that is kept.
TEST_F(ImageStoreTest, AnImage_AlteredInAnyOfItsParts_IsNotServed) {
  const std::string data = folder_ / "data";
  const BootImage image = MakeImage(folder_ / "new", "6.1", "6.1");
  ASSERT_TRUE(AddImage(data, {.folder = folder_ / "new"}).ok());
  const std::string kept = data + "/images/" + image.digest.substr(7);
  const auto is_served = [&] { return ReadStoredImage(data, image.digest).ok(); };
  ASSERT_TRUE(is_served());
  int altered = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kept)) {
    if (entry.path().filename() == "kernel-release") continue;  // no machine is sent it
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    const auto bytes = static_cast<int64_t>(std::filesystem::file_size(entry.path()));
    for (const int64_t at : {int64_t{0}, bytes / 2, bytes - 1}) {
      const auto write = [&](int byte) {
        file.seekp(at);
        file.put(static_cast<char>(byte));
        file.flush();
      };
      file.seekg(at);
      const int was = file.get();
      write(was ^ 1);
      EXPECT_FALSE(is_served()) << entry.path() << ", byte " << at;
      write(was);
      ++altered;
    }
  }
  EXPECT_GE(altered, 3 * 3);  // kernel, initramfs, the list of both
  EXPECT_TRUE(is_served());
}

TEST_F(ImageStoreTest, ImageAdd_WithASigner_AsksForItsSignature) {
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
    return shell(test::SourceFile("deploy/image/sign") + " new " + key + ".key >/dev/null");
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

// Case 140 of hostile input, as far as a machine without Secure Boot goes: what is not signed by
// the kept signer is not served, however it came into its place.
TEST_F(ImageStoreTest, WithASignerKept_AnUnsignedImage_IsRefused) {
  const std::string data = folder_ / "data";
  const BootImage image = MakeImage(folder_ / "new", "6.1", "6.1");
  ASSERT_TRUE(AddImage(data, {.folder = folder_ / "new"}).ok());
  EXPECT_TRUE(ReadStoredImage(data, image.digest).ok());
  if (std::system(("cd " + folder_.path() +
                   " && openssl ecparam -name prime256v1 -genkey -noout -out one.key 2>/dev/null"
                   " && openssl pkey -in one.key -pubout -out data/images/signer.pem 2>/dev/null")
                      .c_str()) != 0)
    GTEST_SKIP() << "there is no openssl to sign with";
  const auto refused = [&](const absl::Status& status, const char* found) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(status.message().find(found), absl::string_view::npos) << status;
  };
  refused(ReadStoredImage(data, image.digest).status(), "found none");
  refused(ReadServedImage(data, folder_ / "new").status(), "found none");
  const auto sign = [&] {
    return std::system((test::SourceFile("deploy/image/sign") + " " + folder_ / "new" + " " +
                        folder_ / "one.key" + " >/dev/null")
                           .c_str());
  };
  ASSERT_EQ(sign(), 0);
  EXPECT_TRUE(ReadServedImage(data, folder_ / "new").ok());
  // Each part is changed in turn, and SHA256SUMS written for it by somebody without the key.
  for (const std::string name : {"vmlinuz", "initramfs", "kernel-release", "SHA256SUMS"}) {
    MakeImage(folder_ / "new", "6.1", "6.1");
    ASSERT_EQ(sign(), 0);
    std::ofstream(folder_ / "new/" + name, std::ios::app) << (name == "SHA256SUMS" ? "\n" : "x");
    if (name != "SHA256SUMS") {
      std::ofstream sums(folder_ / "new/SHA256SUMS", std::ios::trunc);
      for (const char* const one : {"vmlinuz", "initramfs", "kernel-release"})
        sums << Sha256Of(folder_ / "new/" + one) << "  " << one << "\n";
    }
    refused(ReadServedImage(data, folder_ / "new").status(), "found another");
  }
}

// Drivers in a folder of their own, as deploy/image/driver writes them.
void MakeDriver(const std::string& folder, const std::string& kernel, const std::string& text) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/driver.squashfs", std::ios::trunc) << text;
  std::ofstream(folder + "/kernel-release", std::ios::trunc) << kernel << "\n";
  std::ofstream sums(folder + "/SHA256SUMS", std::ios::trunc);
  for (const char* const name : {"driver.squashfs", "kernel-release"})
    sums << Sha256Of(folder + "/" + name) << "  " << name << "\n";
}

TEST_F(ImageStoreTest, ADriver_ForAnotherKernel_OrAltered_IsRefused) {
  const std::string data = folder_ / "data", folder = folder_ / "driver";
  MakeDriver(folder, "6.1.0-49-amd64", "a driver");
  const auto other = AddDriver(data, folder, {"6.1.0-50-amd64"});
  EXPECT_EQ(other.status().code(), absl::StatusCode::kFailedPrecondition) << other.status();
  const std::string message(other.status().message());
  EXPECT_NE(message.find("expected drivers for kernel 6.1.0-50-amd64, found 6.1.0-49-amd64"),
            std::string::npos)
      << message;
  EXPECT_FALSE(AddDriver(data, folder, {}).ok());
  const auto added = AddDriver(data, folder, {"6.1.0-50-amd64", "6.1.0-49-amd64"});
  ASSERT_TRUE(added.ok()) << added.status();
  EXPECT_EQ(added->kernel, "6.1.0-49-amd64");
  const std::string digest = "sha256:" + added->file.digest;
  EXPECT_EQ(ReadStoredDriver(data, digest)->bytes, 8u);
  EXPECT_TRUE(absl::IsNotFound(ReadStoredDriver(data, "sha256:../x").status()));
  // Each of its parts.
  for (const std::string name : {"driver.squashfs", "kernel-release"}) {
    MakeDriver(folder, "6.1.0-49-amd64", "a driver");
    std::ofstream(folder + "/" + name, std::ios::app) << "x";
    const auto altered = AddDriver(data, folder, {"6.1.0-49-amd64"});
    EXPECT_EQ(altered.status().code(), absl::StatusCode::kInvalidArgument) << name;
  }
  std::ofstream(added->file.path, std::ios::app) << "x";
  EXPECT_EQ(ReadStoredDriver(data, digest).status().code(), absl::StatusCode::kInvalidArgument);
}

// Whoever asks again, and for whatever, keeps nobody busy: what is checked is remembered.
TEST_F(ImageStoreTest, ADriver_IsServedByItsName_AndReadOnce) {
  const std::string data = folder_ / "data", folder = folder_ / "driver";
  MakeDriver(folder, "6.1", "a driver");
  const auto added = AddDriver(data, folder, {"6.1"});
  ASSERT_TRUE(added.ok()) << added.status();
  const std::string digest = added->file.digest;
  ServedDrivers served(data);
  const auto ask_often = [&] {
    std::optional<BootFile> file;
    for (int i = 0; i < 50; ++i) file = served.Find(digest);
    return file;
  };
  for (const std::string none : {"", "..", "../../etc/passwd", "12"})
    EXPECT_FALSE(served.Find(none).has_value()) << none;
  EXPECT_FALSE(served.Find(std::string(64, '0')).has_value());
  EXPECT_EQ(served.checks(), 0);
  const auto file = ask_often();
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(file->bytes, 8u);
  EXPECT_EQ(file->digest, digest);
  EXPECT_TRUE(Until([&] { return served.reads() == 1; }));
  EXPECT_TRUE(ask_often().has_value());
  // Altered: it is found out once, and then not looked at again.
  std::ofstream(added->file.path, std::ios::app) << "x";
  EXPECT_TRUE(Until([&] { return !served.Find(digest).has_value(); }));
  EXPECT_FALSE(ask_often().has_value());
  EXPECT_EQ(served.checks(), 2);
  EXPECT_EQ(served.reads(), 2);
  // As it was, and then gone.
  ASSERT_TRUE(AddDriver(data, folder, {"6.1"}).ok());
  EXPECT_TRUE(ask_often().has_value());
  std::filesystem::remove(added->file.path);
  EXPECT_FALSE(ask_often().has_value());
}

TEST_F(ImageStoreTest, WithASignerKept_NoDriverIsServedThatItHasNotSigned) {
  const std::string data = folder_ / "data";
  const auto shell = [&](const std::string& line) {
    return std::system(("cd " + folder_.path() + " && " + line + " 2>/dev/null").c_str());
  };
  if (shell("mkdir -p data/images && openssl ecparam -name prime256v1 -genkey -noout -out one.key"
            " && openssl pkey -in one.key -pubout -out one.pem") != 0)
    GTEST_SKIP() << "there is no openssl to sign with";
  const auto sign = [&](const std::string& folder) {
    return shell(test::SourceFile("deploy/image/sign") + " " + folder + " one.key >/dev/null");
  };
  MakeDriver(folder_ / "new", "6.1", "a driver");
  MakeDriver(folder_ / "other", "6.1", "another driver");
  const auto added = AddDriver(data, folder_ / "new", {"6.1"});
  ASSERT_TRUE(added.ok()) << added.status();
  const std::string digest = added->file.digest;
  ServedDrivers served(data);
  EXPECT_TRUE(served.Find(digest).has_value()) << "nobody asks for signatures yet";
  ASSERT_EQ(shell("cp one.pem data/images/signer.pem"), 0);
  const int before = served.checks();
  for (int i = 0; i < 50; ++i) EXPECT_FALSE(served.Find(digest).has_value());
  EXPECT_EQ(served.checks(), before + 1);
  const absl::Status why = FindStoredDriver(data, "sha256:" + digest).status();
  EXPECT_NE(why.message().find("found none"), absl::string_view::npos) << why;
  // Signed and added again it is.
  ASSERT_EQ(sign("new"), 0);
  ASSERT_TRUE(AddDriver(data, folder_ / "new", {"6.1"}).ok());
  EXPECT_TRUE(served.Find(digest).has_value());
  // A signature that is good, and of another driver.
  ASSERT_EQ(sign("other"), 0);
  ASSERT_EQ(shell("cp other/SHA256SUMS data/drivers/" + digest + ".SHA256SUMS && " +
                  "cp other/SHA256SUMS.sig data/drivers/" + digest + ".SHA256SUMS.sig"),
            0);
  EXPECT_FALSE(served.Find(digest).has_value());
  // A list of this one that somebody else has written.
  ASSERT_EQ(shell("cp new/SHA256SUMS data/drivers/" + digest + ".SHA256SUMS"), 0);
  EXPECT_FALSE(served.Find(digest).has_value());
  EXPECT_EQ(ReadStoredDriver(data, "sha256:" + digest).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ImageStoreTest, AnImage_IsCheckedOnce_AndAgainWhenItChanges) {
  const std::string data = folder_ / "data";
  const BootImage image = MakeImage(folder_ / "new", "6.1", "6.1");
  ServedImages served(data);
  EXPECT_EQ(served.Find(image.digest), nullptr);
  EXPECT_EQ(served.checks(), 0);
  ASSERT_TRUE(AddImage(data, {.folder = folder_ / "new"}).ok());
  const auto ask_often = [&] {
    const BootImage* found = nullptr;
    for (int i = 0; i < 50; ++i) found = served.Find(image.digest);
    return found;
  };
  const BootImage* const found = ask_often();
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->digest, image.digest);
  EXPECT_EQ(served.checks(), 1);
  std::ofstream(data + "/images/" + image.digest.substr(7) + "/initramfs", std::ios::app) << "x";
  EXPECT_EQ(ask_often(), nullptr);
  EXPECT_EQ(served.checks(), 2);
  ASSERT_TRUE(AddImage(data, {.folder = folder_ / "new"}).ok());
  EXPECT_NE(ask_often(), nullptr);
  EXPECT_EQ(served.checks(), 3);
}

TEST_F(ImageStoreTest, AMachine_FetchesADriverByItsDigest_AndBelievesNothingElse) {
  Serve();
  const worker::FetchOptions good{.server = server_->address(),
                                  .digest = "sha256:" + image_.initramfs.digest,
                                  .bytes = initramfs_.size(),
                                  .path = folder_ / "fetched"};
  const absl::Status fetched = worker::FetchByDigest(good);
  ASSERT_TRUE(fetched.ok()) << fetched;
  EXPECT_EQ(Sha256Of(good.path), image_.initramfs.digest);
  std::filesystem::remove(good.path);
  const auto refused = [&](const worker::FetchOptions& options, absl::StatusCode code) {
    const absl::Status status = worker::FetchByDigest(options);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_FALSE(std::filesystem::exists(options.path));
    EXPECT_FALSE(std::filesystem::exists(options.path + ".partly"));
  };
  worker::FetchOptions options = good;
  options.digest = "sha256:" + std::string(64, '0');
  refused(options, absl::StatusCode::kNotFound);
  options.digest = "sha256:..";
  refused(options, absl::StatusCode::kInvalidArgument);
  options = good;
  options.bytes = worker::kDriverBytesMax + 1;
  refused(options, absl::StatusCode::kInvalidArgument);
  options = good;
  options.bytes += 1;  // it never comes
  refused(options, absl::StatusCode::kNotFound);
  options = good;
  options.path = folder_ / "no folder/fetched";
  refused(options, absl::StatusCode::kResourceExhausted);
  options = good;
  options.server = "127.0.0.1:1";
  options.tries_max = 1;
  refused(options, absl::StatusCode::kUnavailable);
  // Altered where it is kept, under the same name.
  initramfs_[7] ^= 1;
  Write("initramfs", initramfs_);
  refused(good, absl::StatusCode::kDataLoss);
}

// A server at a free port of loopback that sends each connection the next of `answers` and closes
// it, and then no other.
class ScriptedServer {
 public:
  explicit ScriptedServer(std::vector<std::string> answers)
      : acceptor_(io_), thread_([this, answers = std::move(answers)] {
          for (const std::string& answer : answers) {
            tcp::socket socket(io_);
            acceptor_.accept(socket);
            if (ending_) return;
            std::string request(4096, 0);
            boost::system::error_code ignored;
            request.resize(socket.read_some(boost::asio::buffer(request), ignored));
            const size_t range = request.find("Range: ");
            ranges_.push_back(request.substr(range, request.find("\r\n", range) - range));
            boost::asio::write(socket, boost::asio::buffer(answer), ignored);
          }
        }) {}
  std::string port() const { return std::to_string(acceptor_.local_endpoint().port()); }
  // What was asked for, once all have been answered.
  std::vector<std::string> ranges() {
    if (thread_.joinable()) thread_.join();
    return ranges_;
  }
  ~ScriptedServer() {
    ending_ = true;  // also where a connection that was to come has not
    tcp::socket last(io_);
    boost::system::error_code ignored;
    last.connect(acceptor_.local_endpoint(), ignored);
    ranges();
  }

  // From byte `from` on, `bytes` of it and no more.
  static std::string Part(const std::string& file, size_t from, size_t bytes) {
    const std::string size = std::to_string(file.size());
    return "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes " + std::to_string(from) + "-" +
           size + "/" + size + "\r\n\r\n" + file.substr(from, bytes);
  }

 private:
  using tcp = boost::asio::ip::tcp;
  // Listens before the thread begins.
  struct Listener : tcp::acceptor {
    explicit Listener(boost::asio::io_context& io) : tcp::acceptor(io) {
      EXPECT_TRUE(ListenAt({boost::asio::ip::address_v4::loopback(), 0}, "here", *this).ok());
    }
  };
  boost::asio::io_context io_;
  Listener acceptor_;
  std::atomic<bool> ending_{false};
  std::vector<std::string> ranges_;
  std::thread thread_;
};

TEST_F(ImageStoreTest, AFetch_ThatEndsTooSoon_GoesOnWhereItWas) {
  constexpr size_t kAtOnce = 900'000;
  std::vector<std::string> parts;
  for (size_t sent = 0; sent < initramfs_.size(); sent += kAtOnce)
    parts.push_back(ScriptedServer::Part(initramfs_, sent, kAtOnce));
  ASSERT_GT(parts.size(), 2u);
  ScriptedServer server(parts);
  const absl::Status fetched =
      worker::FetchByDigest({.server = "127.0.0.1:" + server.port(),
                             .digest = "sha256:" + Sha256Of(folder_ / "initramfs"),
                             .bytes = initramfs_.size(),
                             .path = folder_ / "fetched"});
  EXPECT_TRUE(fetched.ok()) << fetched;
  EXPECT_EQ(server.ranges()[0], "Range: bytes=0-");
  EXPECT_EQ(server.ranges()[1], "Range: bytes=" + std::to_string(kAtOnce) + "-");
}

// The boot server starts again, say, or is told of the driver later than the gateway.
TEST_F(ImageStoreTest, AFetch_GoesOnForEver_WhileTheAnswerIsNotNow) {
  std::vector<std::string> answers(8, "");  // connections that end
  for (const char* const later : {"503 Busy", "500 Broken", "429 Too many"})
    answers.push_back("HTTP/1.1 " + std::string(later) + "\r\nContent-Length: 0\r\n\r\n");
  answers.push_back(ScriptedServer::Part(initramfs_, 0, initramfs_.size()));
  ScriptedServer server(answers);
  std::vector<std::string> why;
  const absl::Status fetched = worker::FetchByDigest(
      {.server = "127.0.0.1:" + server.port(),
       .digest = "sha256:" + Sha256Of(folder_ / "initramfs"),
       .bytes = initramfs_.size(),
       .path = folder_ / "fetched",
       .pause_first_s = 0.001,
       .pause_most_s = 0.002,
       .on_pause = [&](const absl::Status& status) { why.emplace_back(status.message()); }});
  EXPECT_TRUE(fetched.ok()) << fetched;
  ASSERT_EQ(why.size(), 11u);
  EXPECT_EQ(why[8], "the boot server answers 503");
}

TEST_F(ImageStoreTest, AFetch_ThatIsRefused_EndsAtOnce) {
  for (const char* const never : {"404 Not Found", "403 No", "302 Found", "200 OK"}) {
    ScriptedServer server(
        {"HTTP/1.1 " + std::string(never) + "\r\nContent-Length: 0\r\n\r\n"});
    const absl::Status fetched =
        worker::FetchByDigest({.server = "127.0.0.1:" + server.port(),
                               .digest = "sha256:" + std::string(64, 'a'),
                               .bytes = 1000,
                               .path = folder_ / "fetched"});
    EXPECT_EQ(fetched.code(), absl::StatusCode::kNotFound) << fetched;
  }
  // Not the part that it asks for.
  ScriptedServer server({ScriptedServer::Part(initramfs_, 7, 100)});
  const absl::Status fetched =
      worker::FetchByDigest({.server = "127.0.0.1:" + server.port(),
                             .digest = "sha256:" + std::string(64, 'a'),
                             .bytes = 1000,
                             .path = folder_ / "fetched"});
  EXPECT_EQ(fetched.code(), absl::StatusCode::kDataLoss) << fetched;
}

// The system's look-up can neither be bounded nor ended: it goes on beside, one at a time.
TEST_F(ImageStoreTest, AFetch_WhoseNameTakesLong_WaitsNoLongerThanItMay_AndUsesTheAnswerLater) {
  ScriptedServer server({ScriptedServer::Part(initramfs_, 0, initramfs_.size())});
  std::promise<void> answers;
  std::atomic<int> asked{0};
  worker::FetchOptions options{.server = "boot.example:" + server.port(),
                               .digest = "sha256:" + Sha256Of(folder_ / "initramfs"),
                               .bytes = initramfs_.size(),
                               .path = folder_ / "fetched",
                               .pause_first_s = 0.001,
                               .pause_most_s = 0.002,
                               .patience_s = 0.02};
  int pauses = 0;
  options.on_pause = [&](const absl::Status& why) {
    EXPECT_NE(why.message().find("has no address"), std::string::npos) << why;
    if (++pauses != 3) return;
    answers.set_value();
    options.patience_s = 20;
  };
  options.look_up = [&asked, wait = answers.get_future().share()](const std::string& host) {
    EXPECT_EQ(host, "boot.example");
    ++asked;
    wait.wait();
    return std::vector<std::string>{"127.0.0.1"};
  };
  const absl::Status fetched = worker::FetchByDigest(options);
  EXPECT_TRUE(fetched.ok()) << fetched;
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(pauses, 3);
}

TEST_F(ImageStoreTest, AFetch_ThatIsStopped_EndsWhileItWaitsForAName) {
  std::stop_source stop;
  auto answers = std::make_shared<std::promise<void>>();  // the look-up outlives the fetch
  const absl::Status fetched = worker::FetchByDigest(
      {.server = "boot.example:80",
       .digest = "sha256:" + std::string(64, 'a'),
       .bytes = 1000,
       .path = folder_ / "fetched",
       .patience_s = 1000,
       .stop = stop.get_token(),
       .look_up = [&stop, wait = answers->get_future().share()](const std::string&) {
         stop.request_stop();
         wait.wait();
         return std::vector<std::string>();
       }});
  EXPECT_EQ(fetched.code(), absl::StatusCode::kUnavailable) << fetched;
  answers->set_value();
}

// A boot server that sends a byte now and then, for as long as it is heard.
TEST_F(ImageStoreTest, AFetch_FromAServerThatDrips_BeginsAnew) {
  using boost::asio::ip::tcp;
  boost::asio::io_context io;
  tcp::acceptor acceptor(io);
  ASSERT_TRUE(ListenAt({boost::asio::ip::address_v4::loopback(), 0}, "here", acceptor).ok());
  std::thread server([&] {
    tcp::socket socket(io);
    acceptor.accept(socket);
    boost::system::error_code error;
    while (!error) {
      boost::asio::write(socket, boost::asio::buffer("x", 1), error);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  const absl::Status fetched = worker::FetchByDigest(
      {.server = "127.0.0.1:" + std::to_string(acceptor.local_endpoint().port()),
       .digest = "sha256:" + std::string(64, 'a'),
       .bytes = 1000,
       .path = folder_ / "fetched",
       .tries_max = 1,
       .connection_within_s = 0.1});
  server.join();
  EXPECT_EQ(fetched.code(), absl::StatusCode::kUnavailable) << fetched;
}

TEST(NodeDriver, ItsKernelAndItsModules_AreChecked) {
  EXPECT_TRUE(worker::CheckDriverKernel("6.1.0-1", "6.1.0-1").ok());
  const absl::Status other = worker::CheckDriverKernel("6.1.0-2", "6.1.0-1");
  EXPECT_EQ(other.message(), "the driver is for another kernel: expected 6.1.0-1, found 6.1.0-2");
  const test::TempFolder folder;
  std::filesystem::create_directories(folder / "modules");
  const auto modules = [&](const std::string& text) {
    std::ofstream(folder / "modules/load", std::ios::trunc) << text;
    return worker::ModulesOf(folder.path());
  };
  EXPECT_EQ(modules("a.ko\nb.ko\n").value(),
            (std::vector<std::string>{folder / "modules/a.ko", folder / "modules/b.ko"}));
  EXPECT_TRUE(modules("")->empty());
  for (const std::string& bad : {std::string("../../x.ko\n"), std::string("a.so\n"), [] {
         std::string many;
         for (int i = 0; i < 100; ++i) many += "m" + std::to_string(i) + ".ko\n";
         return many;
       }()})
    EXPECT_EQ(modules(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  EXPECT_EQ(worker::DriverLibraries(folder.path()), "");
}

TEST(NodeDriver, ItsFile_IsKeptFromSessions) {
  const test::TempFolder folder;
  proto::NodeDriver named;
  named.set_bytes(uint64_t{1} << 30);
  EXPECT_EQ(worker::DriverMemoryBytes(folder.path(), nullptr), 0u);
  EXPECT_EQ(worker::DriverMemoryBytes(folder.path(), &named), named.bytes());
  // What is known before it is fetched, and then nothing is kept for it.
  EXPECT_TRUE(worker::CheckDriver(named, "127.0.0.1:1", "").ok());
  EXPECT_TRUE(absl::IsInvalidArgument(worker::CheckDriver(named, "", "")));
  EXPECT_TRUE(absl::IsFailedPrecondition(worker::CheckDriver(named, "127.0.0.1:1", "6.1")));
  proto::NodeDriver large;  // more than half of the machine's memory
  large.set_bytes(uint64_t{1} << 60);
  const auto never = [](const absl::Status& why) { ADD_FAILURE() << why; };
  EXPECT_EQ(worker::UseDriver(large, "127.0.0.1:1", "", folder.path(), {}, never).code(),
            absl::StatusCode::kResourceExhausted);
  // That of an earlier start, whatever was named.
  std::filesystem::create_directories(folder / "driver");
  std::ofstream(folder / "driver/kernel-release") << "6.1\n";
  std::ofstream(folder / "driver-loaded") << "sha256:...\n";
  std::ofstream(folder / "driver.squashfs") << std::string(1234, 'x');
  EXPECT_EQ(worker::DriverMemoryBytes(folder.path(), nullptr), 1234u);
}

}  // namespace
}  // namespace outboard::cli
