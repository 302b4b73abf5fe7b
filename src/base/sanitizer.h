#pragma once

// WINNOW_SANITIZES_MEMORY: the address or the thread sanitizer stands between the program and the
// allocator. g++ says so by macros, clang by a feature.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WINNOW_SANITIZES_MEMORY 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define WINNOW_SANITIZES_MEMORY 1
#endif
#endif

// WINNOW_SANITIZES_THREADS: the thread sanitizer alone.
#if defined(__SANITIZE_THREAD__)
#define WINNOW_SANITIZES_THREADS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WINNOW_SANITIZES_THREADS 1
#endif
#endif
