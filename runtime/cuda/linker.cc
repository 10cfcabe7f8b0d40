#include "runtime/cuda/linker.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"

namespace outboard::cuda {
namespace {

constexpr size_t kLogBytesMax = 4096;    // of the driver's compiler, in an error
constexpr unsigned kLinkThreadsMax = 8;  // each takes some 100 MB for a large text

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
  std::vector<std::string> keys, known(texts.size()), made(texts.size());
  if (store_ != nullptr) {
    for (const std::string* text : texts) keys.push_back(KeyOf(*text));
    known = store_->Find(keys);
    known.resize(texts.size());
  }
  std::atomic<size_t> next{0};
  const auto link = [&] {
    for (size_t i; (i = next.fetch_add(1)) < texts.size();) {
      if (!known[i].empty()) modules[i] = Load(known[i].data());
      if (modules[i].ok()) continue;
      absl::StatusOr<std::string> code = CodeOf(*texts[i]);
      modules[i] = code.ok() ? Load(code->data()) : Linked(code.status());
      if (modules[i].ok()) made[i] = *std::move(code);
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

// On any thread. The options' values are numbers and addresses in the place of pointers.
absl::StatusOr<std::string> Linker::CodeOf(const std::string& text) {
  if (absl::Status status = context_->Enter(); !status.ok()) return status;
  const DriverApi& api = context_->api();
  std::string log(kLogBytesMax, '\0');
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log.data(), reinterpret_cast<void*>(uintptr_t{kLogBytesMax})};
  CUlinkState state = nullptr;
  OB_CUDA(*context_, cuLinkCreate, static_cast<unsigned>(std::size(options)), options, values,
          &state);
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
  if (!context_->health().ok()) return status;
  log.resize(std::min(log.find('\0'), log.size()));
  std::replace(log.begin(), log.end(), '\n', ' ');
  return absl::Status(status.code(), absl::StrCat(context_->name(), " does not take the PTX: ",
                                                  status.message(), log.empty() ? "" : "; ", log));
}

Linker::Linked Linker::Load(const void* image) {
  if (absl::Status status = context_->Enter(); !status.ok()) return status;
  CUmodule module = nullptr;
  OB_CUDA(*context_, cuModuleLoadDataEx, &module, image, 0, nullptr, nullptr);
  return std::make_shared<const LinkedModule>(context_, module);
}

}  // namespace outboard::cuda
