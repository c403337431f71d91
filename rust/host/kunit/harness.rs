// SPDX-License-Identifier: GPL-2.0

//! What is below the tests: memory for `alloc`, KUnit's cases, and failures that KUnit counts.

use core::{
    alloc::Layout,
    ffi::CStr,
    fmt,
    ptr::NonNull, //
};

use kernel::{
    alloc::{
        allocator::KVmalloc,
        flags::GFP_KERNEL,
        Allocator,
        NumaNode, //
    },
    bindings,
    str::CStrExt, //
};

// What rustc generates for a program, and nobody for a module: the functions that `alloc` calls. Their names
// and types are rustc's own, and change with it; that all objects link shows that they are all there.

/// Tells `alloc` that this is known.
#[no_mangle]
static __rust_no_alloc_shim_is_unstable: u8 = 0;

/// Read by `alloc`'s own handler of failed allocations, which is not used.
#[no_mangle]
static __rust_alloc_error_handler_should_panic: u8 = 0;

/// Moves memory, or allocates it where there is none; null if that fails.
///
/// # Safety
///
/// Those of [`Allocator::realloc`]; `align` is a power of two that, with `size`, makes a [`Layout`].
unsafe fn reallocate(
    old: Option<NonNull<u8>>,
    old_size: usize,
    align: usize,
    size: usize,
) -> *mut u8 {
    // SAFETY: The caller promises so; the old size made a layout when it was allocated.
    let (old_layout, layout) = unsafe {
        (
            Layout::from_size_align_unchecked(old_size, align),
            Layout::from_size_align_unchecked(size, align),
        )
    };
    // SAFETY: The caller promises so. Tests run in a thread of their own, which may sleep.
    let memory =
        unsafe { KVmalloc::realloc(old, layout, old_layout, GFP_KERNEL, NumaNode::NO_NODE) };
    memory.map_or(core::ptr::null_mut(), |memory| memory.as_ptr().cast())
}

/// # Safety
///
/// Those of `GlobalAlloc::alloc`.
#[no_mangle]
unsafe extern "Rust" fn __rust_alloc(size: usize, align: usize) -> *mut u8 {
    // SAFETY: There is nothing to move, and size and alignment are a layout's.
    unsafe { reallocate(None, 0, align, size) }
}

/// # Safety
///
/// Those of `GlobalAlloc::alloc_zeroed`.
#[no_mangle]
unsafe extern "Rust" fn __rust_alloc_zeroed(size: usize, align: usize) -> *mut u8 {
    // SAFETY: There is nothing to move, and size and alignment are a layout's.
    let memory = unsafe { reallocate(None, 0, align, size) };
    if !memory.is_null() {
        // SAFETY: `size` bytes have just been allocated there, and nobody else knows them.
        unsafe { memory.write_bytes(0, size) };
    }
    memory
}

/// # Safety
///
/// Those of `GlobalAlloc::realloc`.
#[no_mangle]
unsafe extern "Rust" fn __rust_realloc(
    old: *mut u8,
    old_size: usize,
    align: usize,
    size: usize,
) -> *mut u8 {
    // SAFETY: The caller promises that `old` came from here with this layout, and that the new size makes a
    // layout with it. Null it is not: nothing is allocated there.
    unsafe { reallocate(NonNull::new(old), old_size, align, size) }
}

/// # Safety
///
/// Those of `GlobalAlloc::dealloc`.
#[no_mangle]
unsafe extern "Rust" fn __rust_dealloc(memory: *mut u8, size: usize, align: usize) {
    if let Some(memory) = NonNull::new(memory) {
        // SAFETY: The caller promises that `memory` came from here with this layout, and is not used any more.
        unsafe { KVmalloc::free(memory, Layout::from_size_align_unchecked(size, align)) };
    }
}

/// An allocation that cannot fail has failed.
#[no_mangle]
extern "Rust" fn __rust_alloc_error_handler(size: usize, _align: usize) -> ! {
    fail(
        c"rust/host/kunit/harness.rs",
        line!(),
        format_args!("no memory: {size} bytes"),
    )
}

/// Ends the case that is running, as failed. Its values are not dropped.
#[cold]
pub fn fail(file: &'static CStr, line: u32, message: fmt::Arguments<'_>) -> ! {
    // SAFETY: It may be called anywhere.
    let test = unsafe { bindings::kunit_get_current_test() };
    if test.is_null() {
        panic!("{message}");
    }
    let location = bindings::kunit_loc {
        file: file.as_char_ptr(),
        line: line as i32,
    };
    let assertion = bindings::kunit_assert {};
    // SAFETY: `test` is not null: it is the running case's. Location and assertion are read during the call
    // only, the file's name ends in a NUL, `kunit_fail_assert_format` reads nothing but the message, and
    // `%pA` takes a pointer to `fmt::Arguments`.
    unsafe {
        bindings::__kunit_do_failed_assertion(
            test,
            &location,
            bindings::kunit_assert_type_KUNIT_ASSERTION,
            &assertion,
            Some(bindings::kunit_fail_assert_format),
            c"%pA".as_char_ptr(),
            core::ptr::from_ref(&message).cast::<kernel::ffi::c_void>(),
        )
    };
    // SAFETY: As above: this is the thread of the case `test`. It ends without unwinding, as at a BUG: what
    // lies on its stack is never dropped and never used again, for nothing of it is pinned or shared with
    // another thread.
    unsafe { bindings::__kunit_abort(test) }
}

/// The text in front of the NUL that `text` ends with.
pub const fn c_str(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("no NUL at the end, or one before"),
    }
}

/// A case that calls `run`.
pub const fn case(
    name: &'static CStr,
    run: unsafe extern "C" fn(*mut bindings::kunit),
) -> bindings::kunit_case {
    let mut case: bindings::kunit_case = pin_init::zeroed();
    case.name = kernel::str::as_char_ptr_in_const_context(name);
    case.run_case = Some(run);
    case
}

/// A suite of `cases`, the last of which is all zeroes.
pub const fn suite(name: &str, cases: *mut bindings::kunit_case) -> bindings::kunit_suite {
    let mut suite: bindings::kunit_suite = pin_init::zeroed();
    // Its cases may take three times as long as others: some move gigabytes, in emulation.
    suite.attr.speed = bindings::kunit_speed_KUNIT_SPEED_SLOW;
    let mut at = 0;
    // The array's last element stays zero.
    while at < name.len() {
        suite.name[at] = name.as_bytes()[at];
        at += 1;
    }
    assert!(at < suite.name.len());
    suite.test_cases = cases;
    suite
}

/// A KUnit suite named `$suite` of functions of the module around it.
///
/// KUnit writes to suite and cases as long as the module is there, and is alone with them: outside of this
/// macro they have no names.
#[macro_export]
macro_rules! suite {
    ($suite:ident: $($case:ident)*) => {
        const _: () = {
            static mut CASES: [::kernel::bindings::kunit_case; 1 + [$(stringify!($case)),*].len()] = [
                $({
                    extern "C" fn kunit_run(_test: *mut ::kernel::bindings::kunit) {
                        $case()
                    }
                    $crate::case($crate::c_str(concat!(stringify!($case), "\0")), kunit_run)
                },)*
                ::pin_init::zeroed(),
            ];

            static mut SUITE: ::kernel::bindings::kunit_suite =
                $crate::suite(stringify!($suite), (&raw mut CASES).cast());

            // KUnit finds the suites of a module in this section, once it is loaded.
            #[used(compiler)]
            #[link_section = ".kunit_test_suites"]
            static mut ENTRY: *const ::kernel::bindings::kunit_suite = &raw const SUITE;
        };
    };
}
