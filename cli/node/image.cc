// `outboard image`: which image the nodes boot.
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "cli/common.h"
#include "cli/node/commands.h"
#include "cli/node/image_store.h"
#include "cli/node/used_accounts.h"
#include "gateway/base/clock.h"
#include "gateway/nodes/driver_rows.h"
#include "gateway/nodes/image_rows.h"
#include "gateway/nodes/node_registry.h"
#include "gateway/server/gateway.h"

namespace outboard::cli {

namespace {

using gateway::ImageRow;
using gateway::ImageRows;
using gateway::Rollout;
using gateway::RolloutNode;

absl::StatusOr<std::unique_ptr<ImageRows>> OpenRows(const ImageFlags& flags) {
  OB_ASSIGN_OR_RETURN(const std::string path, UsedAccountsFile(flags.data));
  return ImageRows::Open(path);
}

// The image of this digest, or the only one whose digest begins so.
absl::StatusOr<std::string> FindImage(ImageRows& rows, const std::string& given) {
  OB_ASSIGN_OR_RETURN(const std::vector<ImageRow> all, rows.List());
  const std::string prefix = given.starts_with("sha256:") ? given : "sha256:" + given;
  std::string found;
  for (const ImageRow& row : all) {
    if (!row.digest.starts_with(prefix)) continue;
    if (!found.empty())
      return absl::InvalidArgumentError(
          absl::StrCat(given, " is of several images; `outboard image ls` lists them"));
    found = row.digest;
  }
  if (!found.empty()) return found;
  return absl::NotFoundError(
      absl::StrCat("no image ", given, " was added; `outboard image ls` lists those that were"));
}

absl::Status AddDrivers(const ImageFlags& flags) {
  if (!flags.digest.empty() || !flags.signer.empty())
    return absl::InvalidArgumentError("--driver goes without --digest and --signer");
  OB_ASSIGN_OR_RETURN(const auto images, OpenRows(flags));
  OB_ASSIGN_OR_RETURN(const std::vector<ImageRow> all, images->List());
  std::vector<std::string> kernels;
  for (const ImageRow& row : all)
    if (std::find(kernels.begin(), kernels.end(), row.kernel) == kernels.end())
      kernels.push_back(row.kernel);
  const std::string data = DataFolderOr(flags.data);
  OB_ASSIGN_OR_RETURN(const AddedDriver added, AddDriver(data, flags.folder, kernels));
  OB_ASSIGN_OR_RETURN(const auto rows, gateway::DriverRows::Open(gateway::AccountsPath(data)));
  const std::string digest = "sha256:" + added.file.digest;
  OB_RETURN_IF_ERROR(rows->Add({.digest = digest,
                                .kernel = added.kernel,
                                .bytes = added.file.bytes,
                                .added = gateway::WallNow()}));
  std::printf("%s\n", digest.c_str());
  return absl::OkStatus();
}

// A machine gets the last of those for its kernel.
absl::Status ListDrivers(const ImageFlags& flags) {
  OB_ASSIGN_OR_RETURN(
      const auto rows,
      gateway::DriverRows::Open(gateway::AccountsPath(DataFolderOr(flags.data))));
  OB_ASSIGN_OR_RETURN(const std::vector<gateway::DriverRow> all, rows->List());
  for (const gateway::DriverRow& row : all) {
    const auto bytes = static_cast<unsigned long long>(row.bytes);
    if (flags.json)
      std::printf("{\"driver\": %s, \"kernel\": %s, \"bytes\": %llu, \"added\": %s}\n",
                  Quoted(row.digest).c_str(), Quoted(row.kernel).c_str(), bytes,
                  Quoted(ToString(row.added)).c_str());
    else
      std::printf("%s  drivers for kernel %s, %llu MiB, added %s\n", row.digest.c_str(),
                  row.kernel.c_str(), (bytes >> 20) + 1, ToString(row.added).c_str());
  }
  return absl::OkStatus();
}

absl::Status Add(const ImageFlags& flags) {
  if (flags.is_driver) return AddDrivers(flags);
  OB_ASSIGN_OR_RETURN(const auto rows, OpenRows(flags));
  OB_ASSIGN_OR_RETURN(
      const AddedImage added,
      AddImage(DataFolderOr(flags.data),
               {.folder = flags.folder, .digest = flags.digest, .signer_file = flags.signer}));
  OB_RETURN_IF_ERROR(rows->Add({.digest = added.image.digest,
                                .kernel = added.kernel,
                                .bytes = added.image.kernel.bytes + added.image.initramfs.bytes,
                                .added = gateway::WallNow()}));
  std::printf("%s\n", added.image.digest.c_str());
  return absl::OkStatus();
}

void PrintRollout(const Rollout& rollout) {
  std::printf("rollout of %s to %s: %s, since %s\n", rollout.image.c_str(), rollout.nodes.c_str(),
              ToString(rollout.state), ToString(rollout.began).c_str());
  if (!rollout.why.empty()) std::printf("  %s\n", rollout.why.c_str());
  std::printf("  %d %% at a time, each within %lld s\n", rollout.share_percent,
              static_cast<long long>(rollout.within_ms / 1000));
  for (const auto& [serial, node] : rollout.by_serial)
    std::printf("  %s  %s%s%s\n", serial.c_str(), ToString(node.state),
                node.why.empty() ? "" : ": ", node.why.c_str());
}

void PrintRolloutAsJson(const Rollout& rollout) {
  std::string nodes;
  for (const auto& [serial, node] : rollout.by_serial)
    absl::StrAppend(&nodes, nodes.empty() ? "" : ", ", Quoted(serial), ": {\"state\": ",
                    Quoted(ToString(node.state)), ", \"from\": ", Quoted(node.from),
                    ", \"why\": ", Quoted(node.why), "}");
  std::printf(
      "{\"rollout\": %s, \"nodes\": %s, \"state\": %s, \"why\": %s, \"share_percent\": %d, "
      "\"within_seconds\": %lld, \"since\": %s, \"by_serial\": {%s}}\n",
      Quoted(rollout.image).c_str(), Quoted(rollout.nodes).c_str(),
      Quoted(ToString(rollout.state)).c_str(), Quoted(rollout.why).c_str(), rollout.share_percent,
      static_cast<long long>(rollout.within_ms / 1000), Quoted(ToString(rollout.began)).c_str(),
      nodes.c_str());
}

absl::Status List(const ImageFlags& flags) {
  OB_ASSIGN_OR_RETURN(const auto rows, OpenRows(flags));
  OB_ASSIGN_OR_RETURN(const std::vector<ImageRow> all, rows->List());
  OB_ASSIGN_OR_RETURN(const std::vector<gateway::ImageUse> uses, rows->Uses());
  OB_ASSIGN_OR_RETURN(const std::optional<Rollout> rollout, rows->LastRollout());
  for (const ImageRow& row : all) {
    std::string used_by;
    for (const gateway::ImageUse& use : uses)
      if (use.image == row.digest) absl::StrAppend(&used_by, used_by.empty() ? "" : " ", use.nodes);
    const std::string served = row.served ? ToString(*row.served) : "";
    if (flags.json)
      std::printf(
          "{\"image\": %s, \"kernel\": %s, \"bytes\": %llu, \"added\": %s, \"served\": %s, "
          "\"used_by\": %s}\n",
          Quoted(row.digest).c_str(), Quoted(row.kernel).c_str(),
          static_cast<unsigned long long>(row.bytes), Quoted(ToString(row.added)).c_str(),
          row.served ? Quoted(served).c_str() : "null", Quoted(used_by).c_str());
    else
      std::printf("%s  kernel %s, %llu MiB, added %s, %s%s%s\n", row.digest.c_str(),
                  row.kernel.c_str(), static_cast<unsigned long long>((row.bytes >> 20) + 1),
                  ToString(row.added).c_str(),
                  row.served ? ("served since " + served).c_str() : "never served",
                  used_by.empty() ? "" : ", for ", used_by.c_str());
  }
  if (all.empty() && !flags.json) std::fprintf(stderr, "outboard: no image was added\n");
  OB_RETURN_IF_ERROR(ListDrivers(flags));
  if (rollout.has_value()) flags.json ? PrintRolloutAsJson(*rollout) : PrintRollout(*rollout);
  return absl::OkStatus();
}

absl::Status Use(const ImageFlags& flags) {
  OB_ASSIGN_OR_RETURN(const auto rows, OpenRows(flags));
  OB_ASSIGN_OR_RETURN(const std::string image, FindImage(*rows, flags.image));
  OB_RETURN_IF_ERROR(rows->Use(image, flags.nodes, gateway::WallNow()));
  std::fprintf(stderr, "outboard: nodes that fit %s boot %s the next time that they start\n",
               flags.nodes.c_str(), image.c_str());
  return absl::OkStatus();
}

absl::Status BeginRollout(const ImageFlags& flags) {
  OB_ASSIGN_OR_RETURN(const auto rows, OpenRows(flags));
  OB_ASSIGN_OR_RETURN(const std::string image, FindImage(*rows, flags.image));
  OB_ASSIGN_OR_RETURN(const auto registry,
                      gateway::NodeRegistry::Open(gateway::AccountsPath(DataFolderOr(flags.data))));
  OB_ASSIGN_OR_RETURN(const std::vector<gateway::NodeRow> nodes, registry->List());
  std::map<std::string, std::string> images_now;
  for (const gateway::NodeRow& node : nodes)
    if (node.state == gateway::NodeState::kEnrolled) images_now[node.serial] = node.facts.image();
  OB_ASSIGN_OR_RETURN(const Rollout begun,
                      rows->Begin({.image = image,
                                   .nodes = flags.nodes,
                                   .share_percent = flags.share_percent,
                                   .within_ms = int64_t{1000} * flags.within_s},
                                  images_now, gateway::WallNow()));
  std::fprintf(stderr,
               "outboard: %zu nodes get %s, the first alone; `outboard image ls` shows how far it "
               "is\n",
               begun.by_serial.size(), image.c_str());
  return absl::OkStatus();
}

absl::Status TakeBack(const ImageFlags& flags) {
  OB_ASSIGN_OR_RETURN(const auto rows, OpenRows(flags));
  OB_ASSIGN_OR_RETURN(const Rollout rollout, rows->RollBack());
  std::fprintf(stderr, "outboard: the nodes that run %s get back what they had\n",
               rollout.image.c_str());
  return absl::OkStatus();
}

}  // namespace

int RunImageAdd(const ImageFlags& flags) { return Report(Add(flags)); }
int RunImageList(const ImageFlags& flags) { return Report(List(flags)); }
int RunImageUse(const ImageFlags& flags) { return Report(Use(flags)); }
int RunImageRollout(const ImageFlags& flags) { return Report(BeginRollout(flags)); }
int RunImageRollback(const ImageFlags& flags) { return Report(TakeBack(flags)); }

}  // namespace outboard::cli
