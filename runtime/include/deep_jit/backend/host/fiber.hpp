// SPDX-License-Identifier: MIT
//
// host::Fiber: a stack of its own for a function that shall stop in the middle and go on later.
//
// What: the threads of a block that wait at a barrier are fibers of one operating system thread;
// switch_to() goes from one to another and nothing runs at the same time. A default-constructed
// Fiber stands for the stack that the calling thread is on. AddressSanitizer and ThreadSanitizer
// are told about switches when they are in the process.
// When not: no scheduler; which fiber runs next is block_runner.hpp's business.
//
// Example:
//     Fiber here;
//     Fiber other(&body, &argument);  // void body(void*)
//     here.switch_to(other);          // Runs body until it does other.switch_to(here).
//
// Rules: the body never returns and never throws. A fiber is only switched to from the thread that
// made it. Destroying one drops what is on its stack without running destructors.
// Errors: std::bad_alloc when there is no memory for a stack.
// Thread-safety: each fiber belongs to the thread that made it.
#pragma once

#include <dlfcn.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <new>

namespace deep_jit::host {

class Fiber {
 public:
  using Body = void (*)(void* argument);

  // Room for a kernel's local variables, for printf and for an exception. Pages are taken when they
  // are touched, so that a thousand fibers cost what they use.
  static constexpr std::size_t kStackBytes = std::size_t{256} << 10;

  Fiber();
  Fiber(Body body, void* argument);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  // Called on this fiber: goes on with `to`, and returns when some fiber switches back to this one.
  void switch_to(Fiber& to);

 private:
  static void start(unsigned low, unsigned high);
  void arrive();

  ::ucontext_t context_;    // Set when the fiber is left, or made.
  void* memory_ = nullptr;  // The guard page, then the stack; null for a thread's own stack.
  Body body_ = nullptr;
  void* argument_ = nullptr;

  // For the sanitizers: bounds of the stack, what ASan keeps of a fiber, what TSan calls it.
  const void* stack_ = nullptr;
  std::size_t stack_size_ = 0;
  void* fake_stack_ = nullptr;
  void* tsan_fiber_ = nullptr;
  Fiber* previous_ = nullptr;  // Which one switched to this one.
};

// --- Inline implementations ---

namespace detail {

// The sanitizers' functions for fibers, null where their run-time is not in the process. Looked up
// by name: the program that includes this need not be built with them, only the kernel.
struct FiberHooks {
  void (*start_switch)(void** save, const void* stack, std::size_t size);
  void (*finish_switch)(void* saved, const void** old_stack, std::size_t* old_size);
  void* (*tsan_current)();
  void* (*tsan_create)(unsigned flags);
  void (*tsan_destroy)(void* fiber);
  void (*tsan_switch)(void* fiber, unsigned flags);

  static const FiberHooks& get() {
    static const FiberHooks hooks = [] {
      FiberHooks found{};
      find(found.start_switch, "__sanitizer_start_switch_fiber");
      find(found.finish_switch, "__sanitizer_finish_switch_fiber");
      find(found.tsan_current, "__tsan_get_current_fiber");
      find(found.tsan_create, "__tsan_create_fiber");
      find(found.tsan_destroy, "__tsan_destroy_fiber");
      find(found.tsan_switch, "__tsan_switch_to_fiber");
      return found;
    }();
    return hooks;
  }

 private:
  template <class Function>
  static void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
  }
};

}  // namespace detail

inline Fiber::Fiber() {
  const auto& hooks = detail::FiberHooks::get();
  if (hooks.tsan_current != nullptr) tsan_fiber_ = hooks.tsan_current();
}

inline Fiber::Fiber(Body body, void* argument) : body_(body), argument_(argument) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* memory = ::mmap(nullptr, page + kStackBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  memory_ = memory;
  // A stack that is too small ends in a fault, not in somebody else's memory.
  if (::mprotect(memory, page, PROT_NONE) != 0 || ::getcontext(&context_) != 0) {
    ::munmap(memory, page + kStackBytes);
    throw std::bad_alloc();
  }
  stack_ = static_cast<char*>(memory) + page;
  stack_size_ = kStackBytes;
  context_.uc_stack.ss_sp = const_cast<void*>(stack_);
  context_.uc_stack.ss_size = stack_size_;
  context_.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);  // makecontext passes ints only.
  ::makecontext(&context_, reinterpret_cast<void (*)()>(&start), 2, static_cast<unsigned>(self),
                static_cast<unsigned>(std::uint64_t{self} >> 32));
  const auto& hooks = detail::FiberHooks::get();
  if (hooks.tsan_create != nullptr) tsan_fiber_ = hooks.tsan_create(0);
}

inline Fiber::~Fiber() {
  if (memory_ == nullptr) return;
  const auto& hooks = detail::FiberHooks::get();
  if (hooks.tsan_destroy != nullptr) hooks.tsan_destroy(tsan_fiber_);
  ::munmap(memory_, static_cast<std::size_t>(static_cast<const char*>(stack_) -
                                             static_cast<const char*>(memory_)) +
                        stack_size_);
}

inline void Fiber::start(unsigned low, unsigned high) {
  auto& self =
      *reinterpret_cast<Fiber*>(static_cast<std::uintptr_t>(std::uint64_t{high} << 32 | low));
  self.arrive();
  self.body_(self.argument_);
}

// The first thing on a fiber that was switched to.
inline void Fiber::arrive() {
  const auto& hooks = detail::FiberHooks::get();
  // A thread's own stack learns its bounds when it is left for the first time.
  if (hooks.finish_switch != nullptr) {
    hooks.finish_switch(fake_stack_, &previous_->stack_, &previous_->stack_size_);
  }
}

inline void Fiber::switch_to(Fiber& to) {
  const auto& hooks = detail::FiberHooks::get();
  to.previous_ = this;
  if (hooks.start_switch != nullptr) {
    hooks.start_switch(&fake_stack_, to.stack_, to.stack_size_);
  }
  if (hooks.tsan_switch != nullptr) hooks.tsan_switch(to.tsan_fiber_, 0);
  ::swapcontext(&context_, &to.context_);
  arrive();
}

}  // namespace deep_jit::host
