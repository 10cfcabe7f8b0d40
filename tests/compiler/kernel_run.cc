#include "tests/compiler/kernel_run.h"

#include <llvm/ExecutionEngine/Orc/ExecutionUtils.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>
#include <sys/mman.h>

#include <cstring>

#include "compiler/ir/check.h"

namespace outboard::test {

struct LoadedKernel::Impl {
  CompiledKernel kernel;
  std::unique_ptr<llvm::orc::LLJIT> jit;
  void (*function)(void* const*, int64_t, int64_t) = nullptr;
};

LoadedKernel::LoadedKernel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LoadedKernel::~LoadedKernel() = default;
const CompiledKernel& LoadedKernel::kernel() const { return impl_->kernel; }

absl::StatusOr<std::unique_ptr<LoadedKernel>> LoadedKernel::Load(CompiledKernel kernel) {
  static const bool ready = !llvm::InitializeNativeTarget() && !llvm::InitializeNativeTargetAsmPrinter();
  OB_CHECK(ready);
  const auto failed = [](llvm::Error error) { return absl::InternalError(llvm::toString(std::move(error))); };
  auto impl = std::make_unique<Impl>();
  impl->kernel = std::move(kernel);
  auto jit = llvm::orc::LLJITBuilder().create();
  if (!jit) return failed(jit.takeError());
  impl->jit = std::move(*jit);
  auto& dylib = impl->jit->getMainJITDylib();
  dylib.addGenerator(llvm::cantFail(llvm::orc::DynamicLibrarySearchGenerator::GetForCurrentProcess(
      impl->jit->getDataLayout().getGlobalPrefix())));
  auto error = impl->jit->addObjectFile(llvm::MemoryBuffer::getMemBufferCopy(
      llvm::StringRef(impl->kernel.object.data(), impl->kernel.object.size())));
  if (error) return failed(std::move(error));
  auto symbol = impl->jit->lookup(impl->kernel.symbol);
  if (!symbol) return failed(symbol.takeError());
  impl->function = symbol->toPtr<void (*)(void* const*, int64_t, int64_t)>();
  return std::unique_ptr<LoadedKernel>(new LoadedKernel(std::move(impl)));
}

void LoadedKernel::Run(void* const* buffers, int64_t begin, int64_t end) const {
  impl_->function(buffers, begin, end);
}

void LoadedKernel::RunGuarded(Buffers& buffers, int pieces) const {
  constexpr size_t kPage = 4096;
  struct Mapping {
    char* base;
    size_t size;
    char* data;
  };
  std::vector<Mapping> mappings;
  std::vector<void*> pointers;
  for (const std::string& buffer : buffers) {
    const size_t body = (buffer.size() + kPage - 1) / kPage * kPage;
    char* const base =
        static_cast<char*>(mmap(nullptr, body + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    OB_CHECK(base != MAP_FAILED);
    if (body > 0) OB_CHECK(mprotect(base + kPage, body, PROT_READ | PROT_WRITE) == 0);
    char* const data = base + kPage + body - buffer.size();
    std::memcpy(data, buffer.data(), buffer.size());
    mappings.push_back({base, body + 2 * kPage, data});
    pointers.push_back(data);
  }
  const int64_t tasks = kernel().tasks;
  for (int i = pieces; i-- > 0;) Run(pointers.data(), tasks * i / pieces, tasks * (i + 1) / pieces);
  for (size_t i = 0; i < buffers.size(); ++i) {
    std::memcpy(buffers[i].data(), mappings[i].data, buffers[i].size());
    munmap(mappings[i].base, mappings[i].size);
  }
}

}  // namespace outboard::test
