#pragma once

// WINNOW_SANITIZES_MEMORY: the address or thread sanitizer replaces the allocator. g++ defines
// macros for it, clang has __has_feature.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WINNOW_SANITIZES_MEMORY 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define WINNOW_SANITIZES_MEMORY 1
#endif
#endif

// WINNOW_SANITIZES_THREADS: the thread sanitizer only.
#if defined(__SANITIZE_THREAD__)
#define WINNOW_SANITIZES_THREADS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WINNOW_SANITIZES_THREADS 1
#endif
#endif
