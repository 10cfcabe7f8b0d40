// Tests of what machines boot: an image in a folder, and a boot server.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/node/boot_script.h"
#include "cli/node/boot_server.h"
#include "tests/support/temp_folder.h"

namespace outboard::cli {

inline std::string Sha256Of(const std::string& path) { return ReadBootFile(path).value().digest; }

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
                              .https_listen = https_identity_ ? "127.0.0.1:0" : "",
                              .https_identity = https_identity_,
                              .image = ReadBootImage(folder_.path()).value(),
                              .efi = efi_,
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
  std::optional<BootFile> efi_;
  std::mutex mutex_;
  std::map<std::string, std::string> claims_;
  std::map<std::string, BootChoice> chosen_;
  int boots_ = 0;
  std::vector<std::string> asked_;
  std::function<absl::StatusOr<HttpsIdentity>()> https_identity_;
  std::unique_ptr<BootServer> server_;
};

// An image of this kernel, in a folder of its own.
inline BootImage MakeImage(const std::string& folder, const std::string& kernel,
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

}  // namespace outboard::cli
