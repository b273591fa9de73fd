ret
