// CUDA C++ on a processor: threads as fibres, so that a kernel's barriers and shuffles mean what they mean on a GPU.
//
// A block runs at a time, its threads one after the other: a thread runs until it waits for others or ends. Threads that
// never wait share one fibre and cost a call each. Contexts are made by ucontext and switched by setjmp and longjmp, which
// every POSIX system on every processor has. No header of the C++ library is included: hundreds of kernels are compiled.
#include <setjmp.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#define EMULATED 1
#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ static

struct uint3 {
  unsigned x, y, z;
};
typedef uint3 dim3;

uint3 threadIdx, blockIdx;  // not static: a call to longjmp may change them, which the compiler must expect
dim3 blockDim, gridDim;
static const int warpSize = 32;

namespace emulator {

typedef unsigned long long Bits;
enum State { NEW, READY, AT_BARRIER, AT_WARP, DONE };
enum Meeting { SYNC, TAKE, BALLOT };

const unsigned MOST_THREADS = 1024;
const size_t STACK_BYTES = 640 * 1024;  // a GPU gives a thread 512 KiB; what is not touched takes no memory
const Bits CANARY = 0x5afe5afe5afe5afeull;

struct Fibre {
  jmp_buf context;
  char* stack;
  int thread;  // -1 while it has none
};

struct Thread {
  State state;
  Fibre* fibre;
  int line;        // of the barrier or shuffle it waits at
  Meeting meeting;  // what its warp does there
  unsigned mask;
  int from;  // the lane whose value it takes
  Bits value;
};

struct Block {
  Thread threads[MOST_THREADS];
  unsigned exited[MOST_THREADS / 32], waiting[MOST_THREADS / 32];  // lanes of each warp
  int count, live, at_barrier, started;
  bool descending;
  char* stacks;
  Fibre fibres[MOST_THREADS];
  Fibre* idle[MOST_THREADS];
  int fibre_count, idle_count;
  Fibre* current;
  jmp_buf scheduler;
  const char* fault;
  int fault_lines[2];
  void (*body)(void*);
  void* argument;
  char* shared;
};
static Block block;
static char message[256];

static void enter(int thread) {
  unsigned t = thread;
  threadIdx.x = t % blockDim.x;
  threadIdx.y = t / blockDim.x % blockDim.y;
  threadIdx.z = t / blockDim.x / blockDim.y;
}

static int next_new() {
  if (block.started == block.count || block.fault) return -1;
  int nth = block.started++;
  return block.descending ? block.count - 1 - nth : nth;
}

static void stop(const char* fault, int line = 0, int other = 0) {
  if (block.fault) return;
  block.fault = fault;
  block.fault_lines[0] = line;
  block.fault_lines[1] = other;
}

static void release_barrier() {
  if (!block.at_barrier || block.at_barrier < block.live) return;
  int line = 0;
  for (int t = 0; t < block.count; t++) {
    Thread& thread = block.threads[t];
    if (thread.state != AT_BARRIER) continue;
    if (line && thread.line != line) stop("threads of one block wait at different barriers", line, thread.line);
    line = thread.line;
    thread.state = READY;
  }
  block.at_barrier = 0;
}

// Lets a warp go on once all lanes that one of them names wait, and hands their values over.
static void release_warp(int warp) {
  Thread* lanes = &block.threads[warp * 32];
  for (int lane = 0; lane < 32; lane++) {
    if (!(block.waiting[warp] >> lane & 1)) continue;
    Thread& first = lanes[lane];
    unsigned expected = first.mask & ~block.exited[warp];
    if ((expected & block.waiting[warp]) != expected) continue;
    Bits values[32], ballot = 0;
    for (int other = 0; other < 32; other++) {
      if (!(expected >> other & 1)) continue;
      if (lanes[other].mask != first.mask || lanes[other].line != first.line)
        return stop("lanes of one warp meet in different shuffles or with different masks", first.line, lanes[other].line);
      values[other] = lanes[other].value;
      if (values[other]) ballot |= 1ull << other;
    }
    for (int other = 0; other < 32; other++) {
      if (!(expected >> other & 1)) continue;
      Thread& thread = lanes[other];
      if (thread.meeting == BALLOT) thread.value = ballot;
      // A lane that does not take part has no value; a NaN says so where it is used.
      if (thread.meeting == TAKE) thread.value = expected >> thread.from & 1 ? values[thread.from] : ~0ull;
      thread.state = READY;
    }
    block.waiting[warp] &= ~expected;
  }
}

static void ended(int thread) {
  block.threads[thread].state = DONE;
  block.exited[thread / 32] |= 1u << thread % 32;
  block.live--;
  release_barrier();
  if (block.waiting[thread / 32]) release_warp(thread / 32);
}

static void fibre_main() {
  Fibre* self = block.current;
  for (;;) {
    int thread = next_new();
    if (thread < 0) {
      block.idle[block.idle_count++] = self;
      if (!_setjmp(self->context)) _longjmp(block.scheduler, 1);
      continue;
    }
    self->thread = thread;
    block.threads[thread].fibre = self;
    enter(thread);
    block.body(block.argument);
    ended(self->thread);
  }
}

static Fibre* idle_fibre() {
  if (block.idle_count) return block.idle[--block.idle_count];
  Fibre* fibre = &block.fibres[block.fibre_count];
  fibre->stack = block.stacks + STACK_BYTES * block.fibre_count++;
  fibre->thread = -1;
  memcpy(fibre->stack, &CANARY, sizeof CANARY);
  return fibre;
}

static __noinline__ void resume(Fibre* fibre, bool fresh) {
  block.current = fibre;
  if (_setjmp(block.scheduler)) return;
  if (!fresh) _longjmp(fibre->context, 1);
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = fibre->stack;
  context.uc_stack.ss_size = STACK_BYTES;
  context.uc_link = 0;
  makecontext(&context, fibre_main, 0);
  setcontext(&context);
}

// Gives the processor to another thread until this one may go on.
static __noinline__ void wait() {
  Fibre* self = block.current;
  if (!_setjmp(self->context)) _longjmp(block.scheduler, 1);
  asm volatile("" ::: "memory");
}

static void check_stack(Fibre* fibre) {
  if (memcmp(fibre->stack, &CANARY, sizeof CANARY)) stop("a thread's variables do not fit the stack");
}

// Lets each thread of a warp that may go on do so once; whether there was one.
static bool run_warp(int warp) {
  bool moved = false;
  for (int i = 0; i < 32 && !block.fault; i++) {
    int t = warp * 32 + (block.descending ? 31 - i : i);
    if (t >= block.count || block.threads[t].state != READY) continue;
    moved = true;
    enter(t);
    resume(block.threads[t].fibre, false);
    check_stack(block.threads[t].fibre);
  }
  return moved;
}

static void run_block() {
  int n = block.count;
  block.live = n;
  block.at_barrier = block.started = 0;
  for (int t = 0; t < n; t++) block.threads[t].state = NEW;
  for (int w = 0; w <= (n - 1) / 32; w++) {
    int lanes = n - w * 32 < 32 ? n - w * 32 : 32;
    block.waiting[w] = 0;
    block.exited[w] = lanes == 32 ? 0 : ~0u << lanes;  // lanes beyond the block never take part
  }
  while (block.started < n && !block.fault) {
    Fibre* fibre = idle_fibre();
    resume(fibre, fibre->thread < 0);
    check_stack(fibre);
  }
  int warps = (n + 31) / 32;
  while (block.live && !block.fault) {
    bool moved = false;
    for (int i = 0; i < warps && !block.fault; i++)
      // One warp goes as far as it can before another moves: what it overruns there, a barrier is missing for.
      while (run_warp(block.descending ? warps - 1 - i : i)) moved = true;
    if (moved || !block.live) continue;
    int barrier = 0, shuffle = 0;
    for (int t = 0; t < n; t++) {
      if (block.threads[t].state == AT_BARRIER) barrier = block.threads[t].line;
      if (block.threads[t].state == AT_WARP) shuffle = block.threads[t].line;
    }
    stop("threads wait for others that never come", barrier, shuffle);
  }
}

static void barrier(int line) {
  int t = block.current->thread;
  block.threads[t].state = AT_BARRIER;
  block.threads[t].line = line;
  block.at_barrier++;
  release_barrier();
  wait();
}

static Bits meet(int line, Meeting meeting, unsigned mask, Bits value, int from) {
  int t = block.current->thread;
  Thread& thread = block.threads[t];
  if (!(mask >> t % 32 & 1)) stop("a lane meets others in a mask that leaves it out", line);
  thread.state = AT_WARP;
  thread.line = line;
  thread.meeting = meeting;
  thread.mask = mask;
  thread.value = value;
  thread.from = from;
  block.waiting[t / 32] |= 1u << t % 32;
  release_warp(t / 32);
  wait();
  return thread.value;
}

static int lane() { return block.current->thread % 32; }

template <class T>
T taken(int line, unsigned mask, T value, int from) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles exchange 4 or 8 bytes");
  Bits bits = 0;
  memcpy(&bits, &value, sizeof value);
  bits = meet(line, TAKE, mask, bits, from);
  memcpy(&value, &bits, sizeof value);
  return value;
}
template <class T>
T shuffle(int line, unsigned mask, T value, int from, int width = 32) {
  return taken(line, mask, value, (lane() & ~(width - 1)) | (from & (width - 1)));
}
template <class T>
T shuffle_xor(int line, unsigned mask, T value, int lanes, int width = 32) {
  int from = lane() ^ lanes;
  return taken(line, mask, value, (from & ~(width - 1)) > (lane() & ~(width - 1)) ? lane() : from & 31);
}
template <class T>
T shuffle_down(int line, unsigned mask, T value, int lanes, int width = 32) {
  int within = (lane() & (width - 1)) + lanes;
  return taken(line, mask, value, within < width ? lane() + lanes : lane());
}
template <class T>
T shuffle_up(int line, unsigned mask, T value, int lanes, int width = 32) {
  return taken(line, mask, value, (lane() & (width - 1)) >= lanes ? lane() - lanes : lane());
}

static char* dynamic_shared() { return block.shared; }

static const char* text_of(const char* name, unsigned x, unsigned y, unsigned z) {
  char* to = message;
  const char* end = message + sizeof message - 1;
  auto put = [&](const char* from) {
    while (*from && to < end) *to++ = *from++;
  };
  auto number = [&](unsigned n) {
    char digits[12];
    int i = 11;
    digits[i] = 0;
    do digits[--i] = (char)('0' + n % 10);
    while (n /= 10);
    put(digits + i);
  };
  put(block.fault);
  for (int i = 0; i < 2; i++) {
    if (!block.fault_lines[i]) continue;
    put(i && block.fault_lines[0] ? " and " : " (lines ");
    number(block.fault_lines[i]);
  }
  if (block.fault_lines[0] || block.fault_lines[1]) put(")");
  put(", in block ");
  const unsigned place[3] = {x, y, z};
  for (int i = 0; i < 3; i++) {
    if (i) put(",");
    number(place[i]);
  }
  put(" of ");
  put(name);
  *to = 0;
  return message;
}

// Runs a grid; null where all went well, otherwise what was wrong. `launch` is grid, block, bytes shared, descending.
static const char* run(const char* name, void (*body)(void*), void* argument, const unsigned* launch) {
  gridDim = {launch[0], launch[1], launch[2]};
  blockDim = {launch[3], launch[4], launch[5]};
  block.count = (int)(blockDim.x * blockDim.y * blockDim.z);
  block.descending = launch[7] != 0;
  block.body = body;
  block.argument = argument;
  block.fault = 0;
  block.fibre_count = block.idle_count = 0;
  size_t stacks = STACK_BYTES * block.count, shared = launch[6] + 16 + 256;
  block.stacks = (char*)mmap(0, stacks, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (block.stacks == (char*)MAP_FAILED) return "no memory for the threads' stacks";
  char* memory = (char*)__builtin_malloc(shared);
  block.shared = memory + (256 - (size_t)memory % 256);
  const char* said = 0;
  for (blockIdx.z = 0; blockIdx.z < gridDim.z && !said; blockIdx.z++)
    for (blockIdx.y = 0; blockIdx.y < gridDim.y && !said; blockIdx.y++)
      for (blockIdx.x = 0; blockIdx.x < gridDim.x && !said; blockIdx.x++) {
        memset(block.shared, 0xff, launch[6] + 16);  // what a block finds there is of no use: NaN
        run_block();
        for (int i = 0; i < 16; i++)
          if (block.shared[launch[6] + i] != (char)0xff) stop("a write beyond the dynamic shared memory");
        if (block.fault) said = text_of(name, blockIdx.x, blockIdx.y, blockIdx.z);
      }
  __builtin_free(memory);
  munmap(block.stacks, stacks);
  return said;
}

}  // namespace emulator

#define __syncthreads() emulator::barrier(__LINE__)
#define __syncwarp(...) ((void)emulator::meet(__LINE__, emulator::SYNC, emulator::mask_of(__VA_ARGS__), 0, 0))
#define __shfl_sync(...) emulator::shuffle(__LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...) emulator::shuffle_xor(__LINE__, __VA_ARGS__)
#define __shfl_down_sync(...) emulator::shuffle_down(__LINE__, __VA_ARGS__)
#define __shfl_up_sync(...) emulator::shuffle_up(__LINE__, __VA_ARGS__)
#define __ballot_sync(mask, predicate) \
  ((unsigned)emulator::meet(__LINE__, emulator::BALLOT, mask, (predicate) ? 1 : 0, 0))
#define __any_sync(mask, predicate) (__ballot_sync(mask, predicate) != 0)
#define __all_sync(mask, predicate) (__ballot_sync(mask, !(predicate)) == 0)
#define __threadfence() ((void)0)
#define __threadfence_block() ((void)0)

namespace emulator {
static inline unsigned mask_of(unsigned mask = 0xffffffffu) { return mask; }
}
