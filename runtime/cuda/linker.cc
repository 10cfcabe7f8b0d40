#include "runtime/cuda/linker.h"

#include <algorithm>
#include <atomic>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"

namespace outboard::cuda {
namespace {

constexpr size_t kLogBytesMax = 4096;    // of the driver's compiler, in an error
constexpr unsigned kLinkThreadsMax = 8;  // each takes some 100 MB for a large text

// PTX instructions that have no effect, or are slow, in relocatable code (linker.h).
constexpr std::string_view kNotRelocatable[] = {"setmaxnreg", "wgmma"};

bool IsLoadedWhole(const std::string& text) {
  return std::ranges::any_of(kNotRelocatable, [&](std::string_view instruction) {
    return text.find(instruction) != std::string::npos;
  });
}

// The buffer for the error messages of the driver's compiler, for one text.
struct ErrorLog {
  std::string words = std::string(kLogBytesMax, '\0');
  CUjit_option options[2] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  // Numbers and addresses in the place of pointers.
  void* values[2] = {words.data(), reinterpret_cast<void*>(uintptr_t{kLogBytesMax})};
  static constexpr unsigned kCount = 2;

  ErrorLog() = default;
  ErrorLog(const ErrorLog&) = delete;
  ErrorLog& operator=(const ErrorLog&) = delete;

  // `status`, of a call that had this log, with its words; as it is where the device is lost.
  absl::Status Explain(const DriverContext& context, const absl::Status& status) const {
    if (status.ok() || !context.health().ok()) return status;
    std::string said = words.substr(0, words.find('\0'));
    std::ranges::replace(said, '\n', ' ');
    return absl::Status(status.code(),
                        absl::StrCat(context.name(), " does not take the PTX: ", status.message(),
                                     said.empty() ? "" : "; ", said));
  }
};

}  // namespace

LinkedModule::~LinkedModule() {
  if (context_->Enter().ok()) context_->api().cuModuleUnload(module_);
}

std::string Linker::KeyOf(const std::string& text) const {
  const Sha256Digest key = Sha256(absl::StrCat(
      "PTX linked by CUDA ", context_->api().version, " of build ", context_->api().build, " for ",
      context_->Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), ".",
      context_->Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR), "\n", text));
  return {key.begin(), key.end()};
}

std::vector<Linker::Linked> Linker::Link(const std::vector<const std::string*>& texts) {
  if (texts.empty()) return {};
  std::vector<Linked> modules(texts.size(), absl::InternalError("not linked"));
  std::vector<std::string> keys(texts.size()), known(texts.size()), made(texts.size());
  FindKnown(texts, keys, known);
  std::atomic<size_t> next{0};
  const auto link = [&] {
    for (size_t i; (i = next.fetch_add(1)) < texts.size();) {
      if (IsLoadedWhole(*texts[i])) {
        modules[i] = LoadWhole(*texts[i]);
        continue;
      }
      if (!known[i].empty()) modules[i] = Load(known[i].data());
      if (modules[i].ok()) continue;
      absl::StatusOr<std::string> code = CodeOf(*texts[i]);
      modules[i] = code.ok() ? Load(code->data()) : LoadUnlinked(*texts[i], code.status());
      if (code.ok() && modules[i].ok()) made[i] = *std::move(code);
    }
  };
  std::vector<std::thread> threads;
  const size_t count = std::min<size_t>(
      {texts.size(), kLinkThreadsMax, std::max(1u, std::thread::hardware_concurrency())});
  for (size_t t = 1; t < count; ++t) threads.emplace_back(link);
  link();
  for (std::thread& thread : threads) thread.join();
  if (store_ == nullptr) return modules;
  std::vector<runtime::LinkedCode> fresh;
  for (size_t i = 0; i < texts.size(); ++i)
    if (!made[i].empty()) fresh.push_back({std::move(keys[i]), std::move(made[i])});
  if (!fresh.empty()) store_->Add(fresh);
  return modules;
}

// What the store has of those that are linked, by their keys.
void Linker::FindKnown(const std::vector<const std::string*>& texts, std::vector<std::string>& keys,
                       std::vector<std::string>& known) {
  if (store_ == nullptr) return;
  std::vector<size_t> asked;
  std::vector<std::string> questions;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (IsLoadedWhole(*texts[i])) continue;
    asked.push_back(i);
    questions.push_back(keys[i] = KeyOf(*texts[i]));
  }
  if (asked.empty()) return;
  std::vector<std::string> answers = store_->Find(questions);
  for (size_t a = 0; a < std::min(asked.size(), answers.size()); ++a)
    known[asked[a]] = std::move(answers[a]);
}

// On any thread.
Linker::Linked Linker::LoadWhole(const std::string& text) {
  if (absl::Status status = context_->Enter(); !status.ok()) return status;
  ErrorLog log;
  CUmodule module = nullptr;
  const CUresult code = context_->api().cuModuleLoadDataEx(&module, text.c_str(), ErrorLog::kCount,
                                                           log.options, log.values);
  if (code != CUDA_SUCCESS)
    return log.Explain(*context_, context_->Check(code, "cuModuleLoadDataEx"));
  return std::make_shared<const LinkedModule>(context_, module);
}

// Loads a text that the linker did not take. `refused` is the linker's error, which is returned if
// the driver does not load the text either. On any thread.
Linker::Linked Linker::LoadUnlinked(const std::string& text, const absl::Status& refused) {
  if (!context_->health().ok()) return refused;
  Linked module = LoadWhole(text);
  if (!module.ok()) return context_->health().ok() ? Linked(refused) : module;
  context_->WarnOfUnlinkedCode(refused.message());
  return module;
}

// On any thread.
absl::StatusOr<std::string> Linker::CodeOf(const std::string& text) {
  if (absl::Status status = context_->Enter(); !status.ok()) return status;
  const DriverApi& api = context_->api();
  ErrorLog log;
  CUlinkState state = nullptr;
  OB_CUDA(*context_, cuLinkCreate, ErrorLog::kCount, log.options, log.values, &state);
  const char* call = "cuLinkAddData";
  CUresult code = api.cuLinkAddData(state, CU_JIT_INPUT_PTX, const_cast<char*>(text.c_str()),
                                    text.size() + 1, "kernel", 0, nullptr, nullptr);
  void* cubin = nullptr;
  size_t bytes = 0;
  if (code == CUDA_SUCCESS) {
    call = "cuLinkComplete";
    code = api.cuLinkComplete(state, &cubin, &bytes);
  }
  std::string linked;
  if (code == CUDA_SUCCESS) linked.assign(static_cast<const char*>(cubin), bytes);
  const absl::Status status = context_->Check(code, call);
  api.cuLinkDestroy(state);
  if (status.ok()) return linked;
  return log.Explain(*context_, status);
}

Linker::Linked Linker::Load(const void* image) {
  if (absl::Status status = context_->Enter(); !status.ok()) return status;
  CUmodule module = nullptr;
  OB_CUDA(*context_, cuModuleLoadDataEx, &module, image, 0, nullptr, nullptr);
  return std::make_shared<const LinkedModule>(context_, module);
}

}  // namespace outboard::cuda
